// The stage: draws the event text of a run (visualize/events.py says what the lines mean), one canvas a lane.
// Gradio runs this file as a function of `element`, `props` and `watch`, once per page. Two hidden children of the
// element send what is not text: "palette" (all colours, once) and "pixels" (a decoded picture, twice a second).

const CATCH_UP_MS = 120; // squares that came in one message appear over this time
const FRAME_MS = 40; // between two drawings, for the browser often shares the model's processor
const SPEAK_MS = 1000; // a screen reader hears of progress at most once in this time
const SILENCE_MS = 4000; // after so long without a word, ask whether the server is there

const stage = element.querySelector(".stage");
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

let seen = ""; // the event text so far
let events = []; // its lines, split
let cursor = 0; // events that the canvases show
let lanes = [];
let about = {};
let palette = [];
let frame = 0; // pending animation frame, 0 for none
let lastFrame = 0;
let lastSpoken = 0; // when a screen reader last had a sentence
let lastHeard = 0; // when the server last sent something
let lost = false; // the server does not answer

// ---- events -> state

function reset(rows, cols, names) {
  about = {};
  stage.querySelector(".save").hidden = true;
  const list = stage.querySelector(".lanes");
  list.replaceChildren();
  lanes = names.map((name) => {
    const figure = stage.querySelector("template").content.firstElementChild.cloneNode(true);
    figure.style.setProperty("--rows", rows);
    figure.style.setProperty("--cols", cols);
    list.append(figure);
    const canvas = figure.querySelector("canvas");
    resizes.observe(canvas);
    return { name, figure, canvas, rows, cols, tokens: [], ms: 0, passes: 0, reason: "", picture: null, decoded: 0 };
  });
}

function apply(event) {
  const lane = lanes[event[1]];
  if (event[0] === "H") reset(+event[1], +event[2], event.slice(3));
  if (event[0] === "I") about = JSON.parse(event[1]);
  if (event[0] === "R") [lane.ms, lane.passes] = [+event[4], +event[5]];
  if (event[0] === "C") lane.tokens[+event[2]] = +event[3];
  if (event[0] === "E") lane.reason = event[2];
}

function split(line) {
  const cells = line.split(",");
  if (cells[0] === "I") return ["I", line.slice(2)];
  if (cells[0] === "E") return ["E", cells[1], cells.slice(2).join(",")];
  return cells;
}

function read() {
  const text = props.value || "";
  if (!text.startsWith(seen)) [seen, events, cursor] = ["", [], 0];
  events = events.concat(text.slice(seen.length).split("\n").filter(Boolean).map(split));
  seen = text;
  lastHeard = performance.now();
  lost = false;
  wake();
}

// ---- state -> canvas

function draw(lane) {
  const pen = lane.canvas.getContext("2d");
  const [width, height] = [lane.canvas.width, lane.canvas.height];
  const drawn = lane.tokens.length;
  const decoded = Math.min(lane.decoded, drawn);
  const x = (col) => Math.round((col * width) / lane.cols);
  const y = (row) => Math.round((row * height) / lane.rows);
  const box = (square) => {
    const [row, col] = [Math.floor(square / lane.cols), square % lane.cols];
    return [x(col), y(row), x(col + 1) - x(col), y(row + 1) - y(row)];
  };
  pen.clearRect(0, 0, width, height);
  if (decoded) {
    const [row, col] = [Math.floor(decoded / lane.cols), decoded % lane.cols];
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, width, y(row)); // whole rows, and what is there of the next
    if (col) pen.rect(0, y(row), x(col), y(row + 1) - y(row));
    pen.clip();
    pen.drawImage(lane.picture, 0, 0, width, height);
    pen.restore();
  }
  for (let square = decoded; square < drawn; square++) {
    pen.fillStyle = palette[lane.tokens[square]] || "#808080";
    pen.fillRect(...box(square));
  }
  if (seen && !lane.reason && drawn < lane.rows * lane.cols) mark(pen, box(drawn), width / 512);
}

function mark(pen, [x, y, width, height], scale) {
  for (const [colour, thick] of [["#000", 4], ["#fff", 2]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = thick * scale;
    pen.strokeRect(x + 2 * scale, y + 2 * scale, width - 4 * scale, height - 4 * scale);
  }
}

// ---- state -> words

function count(lane) {
  const [drawn, total] = [lane.tokens.length, lane.rows * lane.cols];
  const write = (name, text) => (lane.figure.querySelector("." + name).textContent = text);
  write("tokens", `${drawn} / ${total}`);
  write("passes", `${lane.passes}`);
  write("seconds", (lane.ms / 1000).toFixed(2));
  write("pace", drawn ? (lane.ms / drawn).toFixed(1) : "–");
  lane.figure.querySelector(".progress i").style.width = `${(100 * drawn) / total}%`;
  lane.canvas.setAttribute("aria-label", describe(lane));
}

function describe(lane) {
  const what = about.prompt ? `“${about.prompt}”: ` : "";
  return `${what}${lane.tokens.length} of ${lane.rows * lane.cols} squares drawn`;
}

function state() {
  if (!seen) return "empty";
  const reasons = lanes.map((lane) => lane.reason);
  if (!reasons.every(Boolean)) return lost ? "lost" : "live";
  if (reasons.every((reason) => reason === "done")) return "done";
  return reasons.includes("stopped") ? "stopped" : "broken";
}

function speak(now) {
  const is = state();
  const changed = is !== stage.dataset.state;
  const lane = lanes[0];
  const [drawn, total] = [lane.tokens.length, lane.rows * lane.cols];
  stage.dataset.state = is;
  stage.dataset.tokens = drawn;
  stage.querySelector(".badge").textContent = {
    empty: "NOTHING DRAWN YET",
    live: "LIVE",
    done: "DONE",
    stopped: `STOPPED AT ${drawn}/${total}`,
    broken: `BROKE OFF AT ${drawn}/${total}`,
    lost: `CONNECTION LOST AT ${drawn}/${total}`,
  }[is];
  const row = Math.min(lane.rows, Math.floor(drawn / lane.cols) + 1);
  const sentence = {
    empty: "",
    live: `Drawing row ${row} of ${lane.rows}.`,
    done: "All squares are drawn.",
    stopped: "What is drawn stays. Start draws a new picture.",
    broken: lane.reason,
    lost: "The server does not answer. What is drawn stays; load the page anew to go on.",
  }[is];
  stage.querySelector(".says").textContent = sentence;
  if (!changed && now - lastSpoken < SPEAK_MS) return;
  lastSpoken = now;
  stage.querySelector(".heard").textContent = sentence;
}

// ---- one frame

function wake() {
  if (frame) return;
  lastFrame = performance.now();
  frame = requestAnimationFrame(show);
}

function show(now) {
  if (now < lastFrame + FRAME_MS && cursor < events.length) {
    frame = requestAnimationFrame(show);
    return;
  }
  const share = calm.matches ? 1 : Math.min(1, (now - lastFrame) / CATCH_UP_MS);
  const target = cursor + Math.ceil((events.length - cursor) * share);
  while (cursor < target) apply(events[cursor++]);
  lanes.forEach(draw);
  lanes.forEach(count);
  speak(now);
  frame = cursor < events.length ? requestAnimationFrame(show) : 0;
  lastFrame = now;
}

const resizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.width = Math.round(target.clientWidth * devicePixelRatio);
    target.height = Math.round(target.clientHeight * devicePixelRatio);
  }
  wake();
});

// ---- what comes in beside the text

async function showPixels(text) {
  const [index, decoded] = text.split(",", 2);
  const url = text.slice(index.length + decoded.length + 2);
  const lane = lanes[index];
  if (!lane) return;
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  // Scaled once here, so that a frame only copies it.
  const size = { resizeWidth: Math.max(1, lane.canvas.width), resizeHeight: Math.max(1, lane.canvas.height) };
  const scaled = await createImageBitmap(picture, { ...size, resizeQuality: "high" });
  if (lanes[index] !== lane || decoded < lane.decoded) return; // another run, or a newer picture, was faster
  [lane.picture, lane.decoded] = [scaled, +decoded];
  if (url.startsWith("data:image/png")) offer(url);
  wake();
}

function offer(url) {
  const save = stage.querySelector(".save");
  const name = `${about.prompt || "picture"} ${about.seed}`.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  Object.assign(save, { href: url, download: `${name}.png`, hidden: false });
}

element.addEventListener("pixels", (event) => event.detail && showPixels(event.detail));
element.addEventListener("palette", (event) => {
  palette = (event.detail.match(/.{6}/g) || []).map((hex) => "#" + hex);
  wake();
});
watch("value", read);

// ---- what the page does by itself

async function listen() {
  if (stage.dataset.state !== "live" || performance.now() - lastHeard < SILENCE_MS) return;
  lost = await fetch("gradio_api/queue/status").then((reply) => !reply.ok, () => true);
  wake();
}

setInterval(listen, SILENCE_MS);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector("#stop:not([disabled])")?.click();
});

reset(props.rows, props.cols, [""]);
read();
