"use strict";

const get = (id) => document.getElementById(id);

// The messages: {role, content}, and of an answer {reasoning, note, usage} where it has them.
let conversation = [];
let running = null;  // the AbortController of the answer that streams
const models = new Map();  // what the server says of each, by name

const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const KEPT = [...SAMPLING, "system"];
const RENDER_MS = 60;  // between two renderings of an answer that grows

function headers() {
  const key = get("key").value;
  return {"Content-Type": "application/json", ...(key ? {Authorization: `Bearer ${key}`} : {})};
}

function notice(text) {
  get("notice").textContent = text;
  get("notice").hidden = text === "";
}

// --- What survives a reload ---------------------------------------------------------------------

// A browser may forbid storage, or have no room: the page then forgets, and works.
function load(storage, name) {
  try {
    return JSON.parse(storage().getItem(`encore.${name}`));
  } catch {
    return null;
  }
}

function save(storage, name, value) {
  try {
    storage().setItem(`encore.${name}`, JSON.stringify(value));
  } catch {
    // As above.
  }
}

const durable = () => localStorage;
const ofThisTab = () => sessionStorage;  // where a key is kept

function saveConversation() {
  save(durable, "conversation", conversation);
}

function saveSettings() {
  const values = Object.fromEntries(KEPT.map((id) => [id, get(id).value]).filter(([, value]) => value !== ""));
  save(durable, "settings", {...values, model: get("model").value});
  save(ofThisTab, "key", get("key").value);
}

function restore() {
  const settings = load(durable, "settings") ?? {};
  for (const id of KEPT) get(id).value = settings[id] ?? "";
  get("sampling").open = SAMPLING.some((id) => get(id).value !== "");
  get("instructions").open = get("system").value !== "";
  get("key").value = load(ofThisTab, "key") ?? "";
  const kept = load(durable, "conversation");
  conversation = Array.isArray(kept) ? kept : [];
  for (const message of conversation) complete(addMessage(message), message);
}

// --- Conversation -------------------------------------------------------------------------------

function addMessage({role}) {
  const item = document.createElement("li");
  item.className = role;
  const text = document.createElement("div");
  text.className = "text";
  item.append(text);
  get("messages").append(item);
  return {item, text, reasoning: null};
}

// A part of a message, folded away, that the reasoning goes to.
function addReasoning(shown) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "Reasoning";
  shown.reasoning = document.createElement("div");
  shown.reasoning.className = "text";
  details.append(summary, shown.reasoning);
  shown.item.insertBefore(details, shown.text);
}

function showMessage(shown, message) {
  if (message.role === "user") {
    shown.text.classList.add("plain");
    shown.text.textContent = message.content;
    return;
  }
  if (message.reasoning) {
    if (shown.reasoning === null) addReasoning(shown);
    showText(shown.reasoning, message.reasoning);
  }
  showText(shown.text, message.content);
}

// Shows the whole message, and below it how it ended and what it took.
function complete(shown, message) {
  showMessage(shown, message);
  const parts = [["note", message.note], ["usage", message.usage]].filter(([, text]) => text);
  if (parts.length === 0) return;
  const foot = document.createElement("div");
  foot.className = "foot";
  for (const [name, text] of parts) {
    const part = document.createElement("span");
    part.className = name;
    part.textContent = text;
    foot.append(part);
  }
  shown.item.append(foot);
}

// Runs a change of the conversation, and keeps its end in view if it was.
function following(change) {
  const scroller = get("scroller");
  const follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
  change();
  if (follows) scroller.scrollTop = scroller.scrollHeight;
}

function showEnd() {
  get("scroller").scrollTop = get("scroller").scrollHeight;
}

function setRunning(controller) {
  running = controller;
  const isEmpty = conversation.length === 0;
  get("send").disabled = controller !== null;
  get("stop").disabled = controller === null;
  get("clear").disabled = controller !== null || isEmpty;
  get("regenerate").disabled = controller !== null || isEmpty;
  get("empty").hidden = !isEmpty;
}

// The request; of the sampling parameters only those that were filled in.
function request() {
  const system = get("system").value;
  const messages = system.trim() === "" ? [] : [{role: "system", content: system}];
  const chosen = {};
  for (const id of SAMPLING) {
    const text = get(id).value.trim();
    if (text !== "") chosen[id] = Number(text);
  }
  return {
    model: get("model").value || undefined, messages: [...messages, ...conversation.map(({role, content}) => ({role, content}))],
    stream: true, stream_options: {include_usage: true}, ...chosen,
  };
}

// Yields the data of server-sent events.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) yield part.slice(6);
    }
  }
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// How an answer ended, where a reader should know; nothing where the model was done.
function noteOf(finish, usage) {
  if (finish === "stop" || finish === "tool_calls") return "";
  if (finish !== "length") return finish ?? "broken off";
  const tokens = usage?.completion_tokens;
  const room = models.get(get("model").value)?.max_model_len;
  if (usage && room !== undefined && usage.total_tokens >= room)
    return `cut at ${tokens} tokens: the conversation fills all ${room} that the model takes`;
  return tokens === undefined ? "cut at its limit" : `cut at ${tokens} tokens`;
}

function usageOf(usage, firstMs, lastMs) {
  if (!usage) return "";
  const seconds = (lastMs - firstMs) / 1000;
  const rate = usage.completion_tokens > 1 && seconds > 0 ? `, ${short((usage.completion_tokens - 1) / seconds)} tokens/s` : "";
  return `${usage.prompt_tokens} tokens read, ${usage.completion_tokens} written${rate}`;
}

// Reads an answer into `message` as it comes, and calls `changed` then.
async function stream(message, signal, changed) {
  const response = await fetch("v1/chat/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(request()), signal,
  });
  if (!response.ok) throw new Error(await errorOf(response));
  let usage = null;
  let finish = null;
  let first = null;
  let last = null;
  for await (const data of events(response)) {
    if (data === "[DONE]") {
      message.note = noteOf(finish, usage);
      message.usage = usageOf(usage, first, last);
      return;
    }
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    usage = event.usage ?? usage;
    const choice = event.choices[0];
    finish = choice?.finish_reason ?? finish;
    const {content = "", reasoning_content: reasoning = ""} = choice?.delta ?? {};
    if (!content && !reasoning) continue;
    last = performance.now();
    first ??= last;
    message.content += content ?? "";
    message.reasoning += reasoning ?? "";
    changed();
  }
  throw new TypeError("the stream ended early");
}

function reasonOf(error, hasBegun) {
  if (!(error instanceof TypeError)) return error.message;
  return hasBegun ? "The connection broke off in the middle of the answer. What came is kept; Regenerate asks again."
    : "The server cannot be reached. Is it still running?";
}

// Asks for the next message of the conversation and shows it as it comes. What has come when it ends early
// stays, marked as such; without any of it, `restoreBefore` has the conversation be as it was.
async function answer(restoreBefore) {
  const controller = new AbortController();
  setRunning(controller);
  notice("");
  const message = {role: "assistant", content: "", reasoning: "", note: "broken off", usage: ""};
  const shown = addMessage(message);
  showEnd();
  let rendering = null;
  const changed = () => {
    rendering ??= setTimeout(() => {
      rendering = null;
      following(() => showMessage(shown, message));
    }, RENDER_MS);
  };
  const saveUnfinished = () => save(durable, "conversation", message.content === "" ? conversation : [...conversation, message]);
  addEventListener("pagehide", saveUnfinished);
  try {
    await stream(message, controller.signal, changed);
  } catch (error) {
    const hasBegun = message.content !== "" || message.reasoning !== "";
    if (error.name === "AbortError") message.note = "stopped";
    else notice(reasonOf(error, hasBegun));
  }
  removeEventListener("pagehide", saveUnfinished);
  clearTimeout(rendering);
  if (message.content === "" && message.reasoning === "" && message.note !== "") {
    shown.item.remove();
    restoreBefore();
  } else {
    conversation.push(message);
    following(() => complete(shown, message));
  }
  saveConversation();
  setRunning(null);
  get("prompt").focus();
}

function push(message) {
  conversation.push(message);
  complete(addMessage(message), message);
}

function pop() {
  get("messages").lastElementChild.remove();
  return conversation.pop();
}

function send(event) {
  event.preventDefault();
  const content = get("prompt").value;
  if (running || content.trim() === "") return;
  get("prompt").value = "";
  push({role: "user", content});
  answer(() => {
    pop();
    if (get("prompt").value === "") get("prompt").value = content;
  });
}

function regenerate() {
  if (running || conversation.length === 0) return;
  const before = conversation.at(-1).role === "assistant" ? pop() : null;
  answer(() => {
    if (before) push(before);
  });
}

function clear() {
  conversation = [];
  get("messages").replaceChildren();
  notice("");
  saveConversation();
  setRunning(null);
  get("prompt").focus();
}

async function listModels() {
  const response = await fetch("v1/models", {headers: headers()});
  if (!response.ok) throw new Error(await errorOf(response));
  for (const model of (await response.json()).data) {
    models.set(model.id, model);
    get("model").add(new Option(model.id));
  }
  const chosen = (load(durable, "settings") ?? {}).model;
  if (models.has(chosen)) get("model").value = chosen;
  nameModel();
}

function nameModel() {
  get("empty-model").textContent = get("model").value || "the model";
}

get("composer").addEventListener("submit", send);
get("stop").addEventListener("click", () => running?.abort());
get("regenerate").addEventListener("click", regenerate);
get("clear").addEventListener("click", clear);
get("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
get("side").addEventListener("input", saveSettings);
get("model").addEventListener("change", () => {
  nameModel();
  saveSettings();
});
get("panel").addEventListener("click", () => {
  const isOpen = document.body.classList.toggle("panel");
  get("panel").setAttribute("aria-expanded", isOpen);
  get("panel").textContent = isOpen ? "Back" : "Settings";
});
for (const button of get("suggestions").children) {
  button.addEventListener("click", () => {
    get("prompt").value = button.textContent;
    get("prompt").focus();
  });
}

get("address").textContent = new URL("v1", location.href).href;
restore();
setRunning(null);
showEnd();
get("prompt").focus();
