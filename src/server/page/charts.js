"use strict";

// Charts of the last minute, from the server's own metrics.

const SAMPLES = 60;         // points of a chart, a second each
const SECOND_MS = 1000;
const WIDTH = 300;
const HEIGHT = 60;
const samples = [];         // {time, values}
const pointed = new Map();  // of each chart that the pointer is on: how far from its left, 0 to 1

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
  return amount >= 10 || Number.isInteger(amount) ? Math.round(amount).toLocaleString("en") : amount.toFixed(1);
}

// The least of 1, 2 and 5 times a power of ten that is no less.
function roundUp(amount) {
  const power = 10 ** Math.floor(Math.log10(amount));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= amount * (1 - 1e-9));
}

function xOf(i, count) {
  return WIDTH - (count - 1 - i) * (WIDTH / (SAMPLES - 2));
}

// The point under the pointer; nothing where the pointer is elsewhere, or left of all points.
function pointOf(id, count) {
  if (!pointed.has(id)) return null;
  const i = Math.round(count - 1 - (1 - pointed.get(id)) * (SAMPLES - 2));
  return i >= 0 && i < count ? i : null;
}

// Curves over the last minute, each {name, color, values}, under one scale. Below them stand the values under the
// pointer, or else those of now and the peaks.
function draw(id, title, curves, most) {
  const all = curves.flatMap((curve) => curve.values);
  const top = most ?? roundUp(Math.max(1, ...all));
  const count = curves[0].values.length;
  const at = pointOf(id, count);
  const lines = curves.map(({color, values}) => {
    const points = values.map((value, i) =>
      `${xOf(i, count).toFixed(1)},${(HEIGHT - 2 - (HEIGHT - 4) * value / top).toFixed(1)}`);
    return `<polyline points="${points.join(" ")}" class="${color}"/>`;
  });
  if (at !== null) lines.push(`<line x1="${xOf(at, count)}" x2="${xOf(at, count)}" y1="0" y2="${HEIGHT}"/>`);
  const keys = curves.map(({name, color, values}) => {
    const shown = short(values[at ?? count - 1] ?? 0);
    const peak = at === null ? ` (peak ${short(Math.max(0, ...values))})` : "";
    return `<span><span class="key ${color}"></span>${name} ${shown}${peak}</span>`;
  });
  const when = at === null ? "now" : `${count - 1 - at} s ago`;
  get(id).innerHTML = `<figcaption>${title} <span>${when}</span></figcaption>` +
    `<div class="plot"><span>${short(top)}</span><span class="zero">0</span>` +
    `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title}, over the last minute">` +
    `${lines.join("")}</svg></div><div class="keys">${keys.join("")}</div>`;
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
  draw("kv", "KV memory in use, %", [{name: "used", color: "first", values: used}], 100);
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
    if (models.size === 0) await listModels();
    get("health").textContent = "ready";
    drawAll();
  } catch (error) {
    get("health").textContent = error instanceof TypeError ? "not reachable" : error.message;
  }
}

for (const figure of document.querySelectorAll("figure")) {
  figure.addEventListener("pointermove", (event) => {
    const box = figure.getBoundingClientRect();
    pointed.set(figure.id, (event.clientX - box.left) / box.width);
    if (samples.length > 0) drawAll();
  });
  figure.addEventListener("pointerleave", () => {
    pointed.delete(figure.id);
    if (samples.length > 0) drawAll();
  });
}

poll();
setInterval(poll, SECOND_MS);
