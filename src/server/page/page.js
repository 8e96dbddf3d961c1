"use strict";

const get = (id) => document.getElementById(id);
const conversation = [];  // {role, content}
let running = null;       // the AbortController of the answer that streams

function headers() {
  const key = get("key").value;
  return {"Content-Type": "application/json", ...(key ? {Authorization: `Bearer ${key}`} : {})};
}

function notice(text) {
  get("notice").textContent = text;
}

// --- Conversation -------------------------------------------------------------------------------

function addMessage(role) {
  const item = document.createElement("li");
  item.className = role;
  const text = document.createElement("span");
  item.append(text);
  get("messages").append(item);
  return {item, text};
}

// A part of a message, folded away, that the reasoning goes to. Returns where its text goes.
function addReasoning({item, text}) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "Reasoning";
  const reasoning = document.createElement("span");
  details.append(summary, reasoning);
  item.insertBefore(details, text);
  return reasoning;
}

function setRunning(controller) {
  running = controller;
  const isEmpty = conversation.length === 0;
  get("send").disabled = controller !== null;
  get("stop").disabled = controller === null;
  get("clear").disabled = controller !== null || isEmpty;
  get("regenerate").disabled = controller !== null || isEmpty;
}

function number(id) {
  const text = get(id).value.trim();
  return text === "" ? undefined : Number(text);
}

function parameters() {
  const messages = get("system").value.trim() === "" ? [] : [{role: "system", content: get("system").value}];
  const chosen = {};
  for (const id of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
    const value = number(id);
    if (value !== undefined) chosen[id] = value;
  }
  return {
    model: get("model").value, messages: [...messages, ...conversation], stream: true,
    stream_options: {include_usage: true}, ...chosen,
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

// Asks for the next message of the conversation and shows it as it comes. What has come when it is
// stopped stays.
async function answer() {
  const controller = new AbortController();
  setRunning(controller);
  notice("");
  const {item, text} = addMessage("assistant");
  let content = "";
  let reasoning = null;
  let usage = null;
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(parameters()), signal: controller.signal,
    });
    if (!response.ok) throw new Error(await errorOf(response));
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const delta = event.choices[0]?.delta ?? {};
      if (delta.reasoning_content) {
        reasoning ??= addReasoning({item, text});
        reasoning.textContent += delta.reasoning_content;
      }
      content += delta.content ?? "";
      text.textContent = content;
      item.scrollIntoView({block: "nearest"});
    }
  } catch (error) {
    if (error.name !== "AbortError") notice(error.message);
  }
  if (content === "") {
    item.remove();
  } else {
    conversation.push({role: "assistant", content});
    if (usage) {
      const line = document.createElement("small");
      line.className = "usage";
      line.textContent = `${usage.prompt_tokens} tokens read, ${usage.completion_tokens} written`;
      item.append(line);
    }
  }
  setRunning(null);
  get("prompt").focus();
}

function send(event) {
  event.preventDefault();
  const content = get("prompt").value;
  if (running || content.trim() === "") return;
  get("prompt").value = "";
  conversation.push({role: "user", content});
  addMessage("user").text.textContent = content;
  answer();
}

function regenerate() {
  if (running) return;
  if (conversation.at(-1)?.role === "assistant") {
    conversation.pop();
    get("messages").lastElementChild.remove();
  }
  answer();
}

function clear() {
  conversation.length = 0;
  get("messages").replaceChildren();
  notice("");
  setRunning(null);
  get("prompt").focus();
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

// --- Charts -------------------------------------------------------------------------------------

const SAMPLES = 60;         // points of a chart, a second each
const SECOND_MS = 1000;
const samples = [];         // {time, values}

// "name{labels}" to value.
function parseMetrics(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    values.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return values;
}

function value(sample, name) {
  return sample.values.get(name) ?? 0;
}

function stepsBy(mode) {
  return (sample) => {
    let sum = 0;
    for (const [key, count] of sample.values) {
      if (key.startsWith("encore_steps_total{") && key.includes(`mode="${mode}"`)) sum += count;
    }
    return sum;
  };
}

function rateOf(read) {
  return samples.slice(1).map((now, i) => {
    const seconds = (now.time - samples[i].time) / SECOND_MS;
    return Math.max(0, read(now) - read(samples[i])) / seconds;
  });
}

function rate(name) {
  return rateOf((sample) => value(sample, name));
}

function short(amount) {
  return amount >= 10 || amount === 0 ? Math.round(amount).toLocaleString("en") : amount.toFixed(1);
}

// Curves over the last minute, each {name, color, values}, under one scale.
function draw(id, title, curves, most) {
  const top = Math.max(most ?? 0, 1e-9, ...curves.flatMap((curve) => curve.values));
  const lines = curves.map(({color, values}) => {
    const points = values.map((value, i) => {
      const x = 300 - (values.length - 1 - i) * (300 / (SAMPLES - 2));
      return `${x.toFixed(1)},${(58 - 54 * value / top).toFixed(1)}`;
    });
    return `<polyline points="${points.join(" ")}" class="${color}"/>`;
  });
  const keys = curves.map(({name, color, values}) =>
    `<span class="key ${color}"></span>${name} ${short(values.at(-1) ?? 0)}`);
  get(id).innerHTML = `<figcaption>${title}:${keys.join("")}</figcaption>` +
    `<svg viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label="${title}, over the last minute">${lines.join("")}</svg>`;
}

function drawAll() {
  draw("throughput", "Tokens a second", [
    {name: "written", color: "first", values: rate("encore_generated_tokens_total")},
    {name: "read", color: "second", values: rate("encore_prompt_tokens_total")},
  ]);
  draw("sequences", "Sequences", [
    {name: "running", color: "first", values: samples.map((now) => value(now, "encore_sequences_running"))},
    {name: "waiting", color: "second", values: samples.map((now) => value(now, "encore_sequences_waiting"))},
  ]);
  const used = samples.map((now) => {
    const pages = value(now, "encore_kv_pages");
    return pages === 0 ? 0 : 100 * (1 - value(now, "encore_kv_pages_free") / pages);
  });
  draw("kv", "KV memory in use, %", [{name: "", color: "first", values: used}], 100);
  draw("steps", "Steps a second, by mode", [
    {name: "full", color: "first", values: rateOf(stepsBy("full"))},
    {name: "piecewise", color: "third", values: rateOf(stepsBy("piecewise"))},
    {name: "eager", color: "second", values: rateOf(stepsBy("eager"))},
    {name: "padding rows", color: "fourth", values: rate("encore_padding_total")},
  ]);
}

async function poll() {
  if (document.hidden) return;
  try {
    const response = await fetch("metrics", {headers: headers()});
    if (response.status === 401) {
      get("access").open = true;
      throw new Error("needs an API key");
    }
    if (!response.ok) throw new Error(await errorOf(response));
    samples.push({time: performance.now(), values: parseMetrics(await response.text())});
    if (samples.length > SAMPLES) samples.shift();
    get("health").textContent = "ready";
    if (get("model").length === 0) await listModels();
    drawAll();
  } catch (error) {
    get("health").textContent = error instanceof TypeError ? "not reachable" : error.message;
  }
}

async function listModels() {
  const response = await fetch("v1/models", {headers: headers()});
  if (!response.ok) throw new Error(await errorOf(response));
  for (const model of (await response.json()).data) get("model").add(new Option(model.id));
}

poll();
setInterval(poll, SECOND_MS);
get("prompt").focus();
