"use strict";

// Draws the report of a verb, which the page has as the JSON that --json prints. The page loads nothing.

const {verb, what, report} = JSON.parse(document.getElementById("report").textContent);
const WIDTH = 940;  // of a drawing, in its own units

// --- Elements and numbers -----------------------------------------------------------------------

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, typeof value === "number" ? Number(value.toFixed(3)) : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}
const html = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const grouped = (number) => Math.round(number).toLocaleString("en").replaceAll(",", "\u202f");
const percent = (share) => `${(share * 100).toFixed(2)} %`;
const signed = (share) => `${share < 0 ? "" : "+"}${(share * 100).toFixed(1)} %`;
const sum = (values) => values.reduce((all, value) => all + value, 0);
const most = (values, least = 0) => values.reduce((a, b) => Math.max(a, b), least);

function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, number)) / 3));
  return `${Number((number / 1000 ** unit).toPrecision(3))} ${units[unit]}`;
}

const paragraph = (...text) => html("p", {}, ...text);
const section = (heading, ...children) => html("section", {}, html("h2", {}, heading), ...children);
const tile = (figure, text) => html("div", {class: "tile"}, html("b", {}, figure), html("span", {}, text));
const tiles = (...all) => html("div", {class: "tiles"}, ...all);
const key = (color, text) => [html("span", {class: "key", style: `background:var(--${color})`}), text];

function table(header, rows) {
  const row = (cells, cell) => html("tr", {}, ...cells.map((text) => html(cell, {}, text)));
  return html("div", {class: "scroll"}, html("table", {}, row(header, "th"), ...rows.map((cells) => row(cells, "td"))));
}

// --- Drawings that several reports have ---------------------------------------------------------

const drawing = (height, label, ...children) =>
  svg("svg", {viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label}, ...children);
const text = (x, y, words, attributes = {}) => svg("text", {x, y, ...attributes}, words);
const across = (y, x1, x2, style) => svg("line", {class: style, x1, x2, y1: y, y2: y});
const upright = (x, y1, y2, style, title = null) =>
  svg("line", {class: style, x1: x, x2: x, y1, y2}, title === null ? null : svg("title", {}, title));
const box = (style, x, y, width, height, title, attributes = {}) =>
  svg("rect", {class: style, x, y, width, height, ...attributes}, title === null ? null : svg("title", {}, title));

// 1, 2 or 5 times a power of ten: about `count` of them make `range`.
function niceStep(range, count) {
  const power = 10 ** Math.floor(Math.log10(range / count));
  return power * [1, 2, 5, 10].find((factor) => range / count <= factor * power * (1 + 1e-9));
}

// Where values lie between `first` and `last`, as a share. A scale is "linear", or logarithmic: "decades" has lines at 1, 2 and
// 5 times powers of ten, "doublings" at powers of two.
class Axis {
  constructor(first, last, scale = "linear") {
    Object.assign(this, {first, last, scale});
  }
  place(value) {
    const of = this.scale === "linear" ? (number) => number : (number) => Math.log(Math.max(number, this.first));
    return this.last > this.first ? (of(value) - of(this.first)) / (of(this.last) - of(this.first)) : 0.5;
  }
  ticks(count) {
    const at = [];
    if (this.scale === "linear") {
      const step = niceStep(this.last - this.first, count);
      for (let i = Math.ceil(this.first / step); i * step <= this.last + step * 1e-6; ++i) at.push(Number((i * step).toPrecision(6)));
      return at;
    }
    const [base, factors] = this.scale === "decades" ? [10, [1, 2, 5]] : [2, [1]];
    for (let power = base ** Math.floor(Math.log(this.first) / Math.log(base)); power <= this.last; power *= base) {
      at.push(...factors.map((factor) => Number((power * factor).toPrecision(6))).filter((tick) => tick >= this.first && tick <= this.last));
    }
    return at;
  }
}

// Curves over one axis: each {style, points}, with points [x, y]; what they count stands above, and the unit of x below.
// `dots` are {x, y, title}, `levels` {y, style} and `limits` x of lines through the drawing.
function curves({above, below, x, y, lines, dots = [], levels = [], limits = [], height = 246}) {
  const [left, right, top, bottom] = [62, WIDTH - 12, 24, height - 42];
  const placeX = (value) => left + (right - left) * x.place(value);
  const placeY = (value) => bottom - (bottom - top) * y.place(value);
  return drawing(height, above, text(0, 12, above),
    y.ticks(4).flatMap((tick) => [across(placeY(tick), left, right, "grid"), text(left - 7, placeY(tick) + 4, tick, {"text-anchor": "end"})]),
    x.ticks(10).flatMap((tick) => [upright(placeX(tick), top, bottom, "grid"),
      text(placeX(tick), bottom + 18, tick, {"text-anchor": "middle"})]),
    across(bottom, left, right, "axis"),
    text(right, height - 4, below, {"text-anchor": "end"}),
    levels.map((level) => across(placeY(level.y), left, right, level.style)),
    limits.filter((limit) => limit >= x.first && limit <= x.last).map((limit) => upright(placeX(limit), top, bottom, "limit")),
    lines.map(({style, points}) => svg("polyline", {class: style,
      points: points.map((point) => `${placeX(point[0]).toFixed(1)},${placeY(point[1]).toFixed(1)}`).join(" ")})),
    dots.map((dot) => svg("circle", {class: "bar", cx: placeX(dot.x), cy: placeY(dot.y), r: 4}, svg("title", {}, dot.title))));
}

// A bar for each [name, number], which is a share of `all`.
function shares(heading, words, entries, all, style) {
  if (entries.length === 0) return null;
  return section(heading, paragraph(words), drawing(24 * entries.length + 6, heading, entries.map(([name, number], i) => {
    const [y, share] = [24 * i + 4, number / Math.max(all, 1)];
    return [text(0, y + 11, name, {class: "name"}), box("track", 240, y, 500, 12, null, {rx: 3}),
      box(style, 240, y, 500 * Math.min(1, Math.max(0, share)), 12, null, {rx: 3}),
      text(748, y + 10.5, `${percent(share)} (${grouped(number)})`)];
  }).flat()));
}

// --- encore graphs ------------------------------------------------------------------------------

// Steps by size, each size a bin, or where they are many, bins that can be seen on a logarithmic axis.
function histogram({histogram: counts, sizes, counts: unit}) {
  const [left, right, top, bottom, height] = [52, WIDTH - 10, 12, 210, 262];
  const smallest = Math.min(counts[0][0], sizes[0]);
  const largest = Math.max(counts.at(-1)[0], sizes.at(-1));
  const isLog = largest > 256;
  const of = (size) => isLog ? Math.log2(size) : size;
  const [low, high] = isLog ? [of(smallest) - 0.1, of(largest) + 0.1] : [0.5, largest + 0.5];
  const numBins = isLog ? 110 : Math.round(high - low);
  const x = (size) => left + (right - left) * (of(size) - low) / (high - low);
  const bins = new Map();
  for (const [size, steps] of counts) {
    const place = Math.min(numBins - 1, Math.max(0, Math.floor((x(size) - left) / (right - left) * numBins)));
    const bin = bins.get(place) ?? {first: size, held: 0, missed: 0};
    bin.last = size;
    bin[size > sizes.at(-1) ? "missed" : "held"] += steps;
    bins.set(place, bin);
  }
  const highest = most([...bins.values()].map((bin) => bin.held + bin.missed), 1);
  const y = (steps) => bottom - (bottom - top) * steps / highest;
  const width = (right - left) / numBins;
  const bar = (style, place, bin, from, to) => from === to ? null : box(style, left + width * (place + 0.08), y(to), width * 0.84,
    Math.max(y(from) - y(to), 0.8), `${bin.first === bin.last ? bin.first : `${bin.first} to ${bin.last}`} ${unit}: ${grouped(to - from)} steps`);
  const ticks = isLog ? new Axis(smallest, largest, "doublings").ticks() : new Axis(0.5, high, "linear").ticks(12).filter(Number.isInteger);
  return drawing(height, "Steps by size, with the ladder's sizes",
    new Axis(0, highest).ticks(4).filter(Number.isInteger).flatMap((tick) =>
      [across(y(tick), left, right, "grid"), text(left - 7, y(tick) + 4, grouped(tick), {"text-anchor": "end"})]),
    sizes.map((size) => upright(x(size), top, bottom, "through")),
    [...bins].flatMap(([place, bin]) => [bar("bar", place, bin, 0, bin.held), bar("miss", place, bin, bin.held, bin.held + bin.missed)]),
    across(bottom, left, right, "axis"),
    sizes.map((size) => upright(x(size), bottom + 2, bottom + 12, "mark", `bucket ${size}`)),
    ticks.map((size) => text(x(size), bottom + 28, grouped(size), {"text-anchor": "middle"})),
    text(right, height - 4, `${unit} in the step${isLog ? ", logarithmic" : ""}`, {"text-anchor": "end"}));
}

// The rows of every ladder as one bar: those of the steps it holds, their padding, and those of the steps above it. All bars
// have one scale, so a ladder with few and small hits does not look thrifty.
function comparison(ladders) {
  const [left, width] = [190, 520];
  const longest = most(ladders.map((ladder) => ladder.rows + ladder.padding + ladder.eager_rows), 1);
  const length = (rows) => width * rows / longest;
  return drawing(26 + 26 * ladders.length, "Rows by ladder: replayed, padding, eager", text(left, 14, "rows"),
    text(left + width + 10, 14, "steps held, padding"),
    ladders.flatMap((ladder, i) => {
      const y = 26 + 26 * i;
      let x = left;
      const part = (style, rows, words) => {
        const drawn = rows === 0 ? null : box(style, x, y, length(rows), 12, `${grouped(rows)} ${words}`);
        x += length(rows);
        return drawn;
      };
      return [text(0, y + 11, ladder.name, {class: i === 0 ? "name chosen" : "name"}),
        text(178, y + 11, `${ladder.num_sizes} sizes`, {"text-anchor": "end"}),
        part(i === 0 ? "bar" : "other", ladder.rows, "rows replayed"), part("pad", ladder.padding, "rows of padding"),
        part("miss", ladder.eager_rows, "rows above the ladder, eager"),
        upright(left + length(ladder.rows + ladder.optimum_padding), y - 3, y + 15, "tick",
          `the best ${ladder.num_sizes} sizes pad ${grouped(ladder.optimum_padding)}`),
        text(left + width + 10, y + 10.5, `${percent(ladder.hit_rate)}, ${percent(ladder.waste)}`)];
    }));
}

function ladderSection(ladder) {
  const heading = ladder.what[0].toUpperCase() + ladder.what.slice(1);
  if (ladder.steps === 0) return section(heading, paragraph("None in the log."));
  const all = [ladder, ...ladder.schedules];
  return section(heading,
    paragraph(`${grouped(ladder.steps)} steps, matched on ${ladder.counts}. Bars: steps by size`, ...key("bar", "recorded"),
      ...key("miss", "above the ladder"), ...key("mark", `the ladder's ${ladder.num_sizes} sizes`)),
    html("p", {class: ladder.meets_target ? "" : "over"}, `${ladder.verdict}.`), histogram(ladder),
    paragraph("Beside the named schedules, capped at the largest step, all on one scale: rows", ...key("bar", "replayed"),
      ...key("mark", "padding"), ...key("miss", "of steps above the ladder, eager"),
      ". The mark is where the padding of the best ladder of as many sizes would end."),
    comparison(all),
    html("details", {}, html("summary", {}, "Figures and sizes"),
      table(["ladder", "sizes", "largest", "hit rate", "rows eager", "padding", "waste", "optimum of as many"],
        all.map((row) => [row.name, row.num_sizes, grouped(row.largest), percent(row.hit_rate), grouped(row.eager_rows),
          grouped(row.padding), percent(row.waste), grouped(row.optimum_padding)])),
      paragraph(html("code", {}, ladder.sizes.join(", ")))));
}

function drawGraphs() {
  const ladders = [report.decode, report.tokens];
  const [rows, eager] = [sum(ladders.map((ladder) => ladder.rows)), sum(ladders.map((ladder) => ladder.eager_rows))];
  const launched = rows + report.padding + eager;
  const share = (part) => percent(launched === 0 ? 0 : part / launched);
  const {modes, reasons} = report.logged;
  const fallbacks = [...Object.entries(report.reasons), ...Object.entries(reasons).map(([name, steps]) => [`${name} (logged)`, steps])];
  const admissible = report.coverage.steps.map((row) =>
    [`${row.steps}: ${row.mode}${row.reason === "none" ? "" : ` (${row.reason})`}`, row.count]);
  return ["Coverage by recordings",
    tiles(tile(grouped(report.steps), "steps"), tile(percent(report.hit_rate), "hit rate"),
      tile(share(report.padding), "of all rows are padding"),
      tile(grouped(report.steps - report.hits), `steps above the ladders, eager: ${share(eager)} of all rows`)),
    ...ladders.map(ladderSection),
    shares("Modes", "How the steps were run when the log was written.", Object.entries(modes), report.steps, "bar"),
    shares("Fallbacks", "Steps that no recording holds, or that were not run as wanted.", fallbacks, report.steps, "miss"),
    shares("Admissible steps", "Every step that the scheduler may form, by how it would be run.", admissible,
      report.coverage.admissible, "bar")];
}

// --- encore bench ladder ------------------------------------------------------------------------

function drawLadder() {
  const {buckets, counts, ladder} = report;
  const x = new Axis(buckets[0].bucket, buckets.at(-1).bucket, "doublings");
  const below = `${counts} in the step, logarithmic`;
  const points = (of) => buckets.map((row) => [row.bucket, of(row)]);
  const dots = (of) => buckets.map((row) => ({x: row.bucket, y: of(row), title: `${row.bucket} ${counts}: ${row.us.toFixed(1)} us, ` +
    `floor ${row.floor_us.toFixed(1)} us, ${row.over_floor.toFixed(3)} of it`}));
  const ratios = buckets.map((row) => row.over_floor);
  const [lowest, highest] = [Math.min(1, ...ratios), Math.max(1, ...ratios)];
  const margin = (highest - lowest) * 0.08 + 0.01;
  const worst = buckets.reduce((a, b) => b.over_floor > a.over_floor ? b : a);
  const changes = buckets.slice(1).map((row, i) => ({row, before: buckets[i].bucket}));
  const changed = changes.reduce((a, b) => a && Math.abs(a.row.change_of_ratio) >= Math.abs(b.row.change_of_ratio) ? a : b, null);
  return [`The ${ladder} and its floor`,
    tiles(tile(buckets.length, "buckets"),
      tile(worst.over_floor.toFixed(3), `of its floor takes ${worst.bucket}, the farthest`),
      changed && tile(signed(changed.row.change_of_ratio),
        `the largest change of that between neighbours, ${changed.before} to ${changed.row.bucket}`)),
    section("Time of a step",
      paragraph(...key("bar", "as measured"), ...key("mark", `floor: the sum over the ops of ${report.floor}`)),
      curves({above: "us a step", below, x, y: new Axis(0, most(buckets.map((row) => row.us)) * 1.05), height: 330,
        lines: [{style: "floor", points: points((row) => row.floor_us)}, {style: "first", points: points((row) => row.us)}],
        dots: dots((row) => row.us)})),
    section("Time over floor", paragraph("1 is the floor."),
      curves({above: "time over floor", below, x, y: new Axis(lowest - margin, highest + margin), height: 330,
        lines: [{style: "first", points: points((row) => row.over_floor)}], dots: dots((row) => row.over_floor),
        levels: [{y: 1, style: "floor"}]}),
      html("details", {}, html("summary", {}, "Figures"),
        table([counts, "us", "floor us", "over floor", "change of it", "tokens/s"], buckets.map((row) =>
          [row.bucket, row.us.toFixed(1), row.floor_us.toFixed(1), row.over_floor.toFixed(3),
            row.change_of_ratio === null ? "" : signed(row.change_of_ratio), grouped(row.bucket / row.us * 1e6)]))))];
}

// --- encore profile -----------------------------------------------------------------------------

// All groups that took time or have a floor, those that take the most in the last mode first.
function groupsOf(modes) {
  const times = new Map(Object.entries(report.floors).map(([group, floor]) => [group, floor.us]));
  for (const mode of modes) {
    for (const [group, time] of Object.entries(mode.traced?.kernels ?? {})) times.set(group, time.us);
  }
  return [...times.keys()].sort((a, b) => times.get(b) - times.get(a));
}

// The short name of a device function: without what it returns, its scope and its parameters.
function shortName(name) {
  const plain = name.replaceAll("(anonymous namespace)::", "");
  return plain.slice(0, plain.search(/[(<]|$/)).split(/::|\s/).at(-1);
}

// What the steps of each mode consist of, a bar a mode, all on one scale.
function parts(modes, groups, style) {
  const length = (mode) => mode.traced?.step_us ?? mode.step_us;
  const scale = (WIDTH - 96 - 90) / most(modes.map(length), report.floor_us);
  const height = 44 * modes.length + 8;
  return drawing(height, "what a step consists of", modes.flatMap((mode, i) => {
    const y = 44 * i + 8;
    let x = 96;
    const part = (kind, words, us) => {
      if (!(us > 0)) return null;
      x += us * scale;
      return box(kind, x - us * scale, y, us * scale, 24, `${words}: ${us.toFixed(1)} us`);
    };
    const {traced} = mode;
    const drawn = traced === null ? [part("bar", "step", mode.step_us)] : [
      ...groups.map((group) => part(style(group), group, traced.kernels[group]?.us)), part("copy", "copies", traced.copies_us),
      part("gap", "gaps between kernels", traced.gaps_us), part("idle", "idle between steps", traced.idle_us)];
    return [text(0, y + 16, mode.mode, {class: "name"}), ...drawn, text(x + 6, y + 16, `${length(mode).toFixed(0)} us`)];
  }), report.floor_us > 0 ? upright(96 + report.floor_us * scale, 0, height, "mark", `floor: ${report.floor_us.toFixed(1)} us`) : null);
}

// One step: its kernels in two lanes, so that overlap shows, its copies, and the host's calls. Lengths are shares of the
// drawing's width, which may be any.
function timeline(spans, longest, style) {
  const share = (ns) => 100 * ns / longest;
  const least = 0.06;
  const at = (percentage) => `${percentage.toFixed(3)}%`;
  let kernels = 0;
  return svg("svg", {class: "steps", role: "img", "aria-label": "device and host over time"},
    new Axis(0, longest / 1e3).ticks(5).flatMap((us) => {
      const x = share(us * 1e3);
      return [upright(at(x), 14, 100, "grid"),
        text(at(x), 11, `${us} us`, {"text-anchor": us === 0 ? "start" : x > 90 ? "end" : "middle"})];
    }),
    spans.map((span) => {
      const [kind, y, height] = span.kind === "kernel" ? [style(span.op), 20 + 24 * (kernels++ % 2), 24]
        : span.kind === "copy" ? ["copy", 20, 48] : [span.kind === "wait call" ? "wait" : "call", 76, 20];
      const [x, us] = [Math.min(share(span.start_ns), 100 - least), (span.end_ns - span.start_ns) / 1e3];
      const name = shortName(span.name);
      return box(kind, at(x), y, at(Math.min(Math.max(share(us * 1e3), least), 100 - x)), height,
        `${span.op === "" ? name : `${span.op}: ${name}`}, ${us.toFixed(2)} us, from ${(span.start_ns / 1e3).toFixed(2)}`);
    }));
}

function timelines(modes, style) {
  const end = (mode) => most(mode.traced.one_step.map((span) => span.end_ns), 1);
  const longest = most(modes.map(end));
  const zoom = (id, words, checked = {}) =>
    [html("input", {type: "radio", name: "zoom", id, ...checked}), html("label", {for: id}, words)];
  return section("One step in time",
    paragraph("A step of the usual length in each mode, all on one scale. Neighbouring kernels lie in two lanes, so that overlap " +
      "shows; where both are empty the device waits. Point at a bar for its name."),
    ...zoom("z1", "whole", {checked: ""}), ...zoom("z4", "4 times"), ...zoom("z16", "16 times"),
    html("div", {class: "scroll"}, html("div", {class: "rows"}, modes.flatMap((mode) => [
      html("div", {class: "row"},
        html("div", {class: "names"}, html("b", {}, mode.mode), html("span", {}, "device"), html("span", {}, "host")),
        timeline(mode.traced.one_step, longest, style)),
      html("p", {class: "row-end"}, `${mode.traced.one_step.filter((span) => span.kind === "kernel").length} kernels, ` +
        `${(end(mode) / 1e3).toFixed(1)} us`)]))));
}

function drawProfile() {
  const {modes} = report;
  const [last, groups] = [modes.at(-1), groupsOf(modes)];
  const style = (group) => `c${groups.indexOf(group) % 16}`;
  const traced = report.no_tracer === null;
  const legend = [...groups.map((group) => [style(group), group]), ["copy", "copy"], ["gap", "gap between kernels"],
    ["idle", "idle between steps"], ["call", "host: call"], ["wait", "host: waits"]];
  const floorOf = (group) => report.floors[group] ?? {nodes: 0, bytes: 0, us: 0};
  return ["Where a step's time goes",
    tiles(tile(`${last.step_us.toFixed(1)} us`, `a step, ${last.mode}`),
      report.floor_us > 0 ? tile((last.step_us / report.floor_us).toFixed(2), `of its floor, ${report.floor_us.toFixed(1)} us`) : null,
      last.traced && tile(`${last.traced.idle_us.toFixed(1)} us`, "idle between steps"),
      last.traced && tile(`${(last.overhead * 100).toFixed(1)} %`, "of a step no kernel runs")),
    traced ? null : section("Not traced", paragraph(report.no_tracer)),
    section("What a step consists of",
      paragraph(`A kernel's own time: since everything before it had ended. The line is the floor: ${report.floor}.`),
      html("div", {class: "legend"}, legend.map(([kind, words]) => html("span", {},
        svg("svg", {viewBox: "0 0 10 10"}, svg("rect", {class: kind, width: 10, height: 10, rx: 2})), words))),
      parts(modes, groups, style)),
    traced ? timelines(modes, style) : null,
    traced ? section("By part",
      paragraph(`${bytes(report.weight_bytes)} of weights take ${report.weights_us.toFixed(1)} us of the floor; all ` +
        `${(report.flops / 1e9).toPrecision(3)} GFLOP by themselves would take ${report.flops_us.toFixed(1)} us.`),
      table(["part", ...modes.flatMap((mode) => [`${mode.mode} us`, "share"])], Object.keys(last.traced.parts).map((part) =>
        [`${part} (${last.traced.parts[part].depends_on})`, ...modes.flatMap(({traced: {parts: {[part]: time}}}) =>
          [time.us.toFixed(1), percent(time.share)])]))) : null,
    section("By op", paragraph(`Own time a step; the last two columns are of ${last.mode}.`),
      table(["op", "nodes", "bytes", "floor us", ...modes.map((mode) => `${mode.mode} us`), "share", "over floor"],
        groups.map((group) => {
          const [floor, us] = [floorOf(group), modes.map((mode) => mode.traced?.kernels[group]?.us ?? 0)];
          return [group, floor.nodes, grouped(floor.bytes), floor.us.toFixed(1), ...us.map((time) => time.toFixed(1)),
            last.traced ? percent(us.at(-1) / last.traced.step_us) : "-",
            floor.us > 0 && us.at(-1) > 0 ? (us.at(-1) / floor.us).toFixed(2) : ""];
        })))];
}

// --- encore bench serve and encore sim ----------------------------------------------------------

// Steps of one mode and bucket, which counts sequences for decode steps and tokens for mixed ones.
function stepGroups() {
  const groups = new Map();
  for (const row of report.steps) {
    const mixed = row.q === 0;
    const bucket = mixed ? `${row.bucket_tokens} tokens, with prompts` : `${row.bucket_sequences} sequences`;
    const group = groups.get(`${row.mode} ${bucket}`) ?? {mode: row.mode, bucket, steps: 0, tokens: 0, padding: 0};
    for (const count of ["steps", "tokens", "padding"]) group[count] += row[count];
    groups.set(`${row.mode} ${bucket}`, group);
  }
  return [...groups.values()];
}

function drawTraffic() {
  const {curves: drawn, wall_s: wall} = report;
  const overTime = (above, lines) => curves({above, below: "seconds since the start", x: new Axis(0, Math.max(wall, 1e-6)),
    y: new Axis(0, most(lines.flat().map((point) => point[1])) * 1.05 || 1),
    lines: lines.map((points, i) => ({style: ["first", "second"][i], points}))});
  const distribution = ({what: words, limit_ms: limit, points}) => {
    const [least, longest] = [points[0][0], Math.max(points.at(-1)[0], points[0][0] * 1.01, limit ?? 0)];
    return curves({above: `% of ${words}, up to so many ms`, below: "ms", y: new Axis(0, 100),
      x: new Axis(least, longest, longest > 20 * least ? "decades" : "linear"), lines: [{style: "first", points}],
      limits: limit === null ? [] : [limit]});
  };
  return ["Requests as they were served",
    tiles(tile(grouped(report.output_tokens_per_s), "output tokens/s"), tile(report.requests_per_s.toFixed(2), "requests/s"),
      tile(`${report.ttft_ms.p50.toFixed(1)} ms`, "time to first token, the median"),
      tile(`${report.between_deliveries_ms.p99.toFixed(1)} ms`, "between deliveries, 99 % of them"),
      report.goodput && tile(report.goodput.requests_per_s.toFixed(2), "requests/s within the limits"),
      report.device_busy && tile(percent(report.device_busy.share), report.device_busy.what)),
    section("Over time", paragraph(...key("bar", "running"), ...key("mark", "waiting")),
      overTime("requests", [drawn.running, drawn.waiting]), overTime("output tokens/s", [drawn.output_tokens_per_s]),
      drawn.host_gib.length === 0 ? null : [paragraph(...key("bar", "host"), ...key("mark", "device")),
        overTime("GiB of memory in use", [drawn.host_gib, drawn.device_gib])]),
    section("Latencies", ...drawn.latencies.map(distribution)),
    section("Steps", table(["bucket", "ran", "steps", "tokens", "padding", "share of padding"], stepGroups().map((row) =>
      [row.bucket, row.mode, grouped(row.steps), grouped(row.tokens), grouped(row.padding),
        percent(row.padding / Math.max(1, row.tokens + row.padding))])))];
}

// --- encore eval --------------------------------------------------------------------------------

function errors(heading, words, rows) {
  if (!rows?.length) return null;
  const largest = most(rows.map((row) => row.error));
  const height = 24 * rows.length + 6;
  return section(heading, paragraph(words), drawing(height, heading, rows.flatMap(({name, error}, i) => {
    const y = 24 * i + 4;
    return [text(0, y + 11, name, {class: "name"}), box("track", 400, y, 430, 12, null, {rx: 3}),
      box("bar", 400, y, largest > 0 ? 430 * error / largest : 0, 12, name, {rx: 3}), text(838, y + 10.5, error.toExponential(3))];
  })));
}

function drawEval() {
  const compares = "against" in report;
  const {kl} = report;
  const figures = [["perplexity", report.perplexity.toFixed(4), report.reference_perplexity?.toFixed(4)],
    ["prefill, tokens/s", grouped(report.tokens_per_second), compares ? grouped(report.reference_tokens_per_second) : undefined],
    ["weights", bytes(report.weight_bytes), compares ? bytes(report.reference_weight_bytes) : undefined],
    ...(compares ? [["KL divergence, mean (nats)", kl.mean.toExponential(3)], ["KL divergence, 99 % (nats)", kl.p99.toExponential(3)],
      ["KL divergence, largest (nats)", kl.max.toExponential(3)], ["same likeliest token", percent(report.same_top)],
      ["RMS of the difference in p", report.rms_probability.toExponential(3)]] : [])];
  return ["Evaluation",
    tiles(tile(report.perplexity.toFixed(4), "perplexity"),
      ...(compares ? [tile(report.reference_perplexity.toFixed(4), "of the reference"),
        tile(kl.mean.toExponential(2), "mean KL divergence, nats"), tile(percent(report.same_top), "same likeliest token")] : [])),
    errors("Error by layer", "Relative error of the residual stream behind each layer, on the first tokens of the text.",
      report.layers?.map((row) => ({name: row.behind, error: row.error}))),
    errors("Worst tensors", "Relative error of the numbers that weights stand for, the largest first.",
      report.worst_tensors?.map((row) => ({name: row.tensor, error: row.error}))),
    section("All figures", table(["", "model", "reference"], figures.map(([name, ours, theirs]) => [name, ours, theirs ?? "-"])))];
}

// ------------------------------------------------------------------------------------------------

const DRAWN = {"graphs": drawGraphs, "bench ladder": drawLadder, "profile": drawProfile, "bench serve": drawTraffic, "sim": drawTraffic,
  "eval": drawEval};
const main = document.querySelector("main");
document.title = `encore ${verb}`;
try {
  const [heading, ...drawn] = DRAWN[verb]();
  main.append(html("h1", {}, heading), paragraph(what), ...drawn.filter((part) => part !== null));
} catch (error) {
  main.append(paragraph(`This report could not be drawn: ${error.message}`));
  throw error;
}
