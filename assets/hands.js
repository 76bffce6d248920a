// What reaches the stage: pictures and colours from the server, a person's hands; then it opens.

// ---- what comes in beside the text

async function showPixels(line) {
  const [index, decoded] = line.split(",", 2);
  const url = line.slice(index.length + decoded.length + 2);
  const board = boards[index];
  if (!board) return;
  const image = new Image();
  image.src = url;
  await image.decode();
  if (boards[index] !== board || decoded < board.decoded) return; // another run, or a newer picture, was faster
  board.image = { pixels: image, decoded: +decoded };
  await fit(board);
  if (url.startsWith("data:image/png")) offer(board, url);
}

// Scales a lane's picture once, so that a frame only copies it.
async function fit(board) {
  const { image, canvas } = board;
  const [width, height] = [Math.max(1, canvas.width), Math.max(1, canvas.height)];
  const scaled = await createImageBitmap(image.pixels, { resizeWidth: width, resizeHeight: height, resizeQuality: "high" });
  if (board.image !== image || canvas.width !== scaled.width || canvas.height !== scaled.height) return;
  Object.assign(board, { picture: scaled, decoded: image.decoded });
  board.repaint();
  wake();
}

function offer({ figure, lane }, url) {
  const { prompt, seed } = run.about;
  const parts = [prompt || "picture", seed, run.lanes.length > 1 && lane.name].filter((part) => part || part === 0);
  const name = parts.join(" ").toLowerCase().replace(/[^a-z0-9]+/g, "-");
  Object.assign(figure.querySelector(".save"), { href: url, download: `${name}.png`, hidden: false });
}

element.addEventListener("pixels", ({ detail }) => detail.split("\n").filter(Boolean).forEach(showPixels));
element.addEventListener("palette", ({ detail }) => {
  palette = (detail.match(/.{6}/g) || []).map((hex) => "#" + hex);
  boards.forEach((board) => board.repaint());
  wake();
});
element.addEventListener("codes", ({ detail }) => {
  const [side] = detail.split(",", 1);
  const url = detail.slice(side.length + 1);
  const at = (count) => `calc(var(--side) * ${-count})`;
  const tile = (token) => `url(${url}) ${at(token % 32)} ${at(Math.floor(token / 32))} / calc(var(--side) * 32)`;
  sheet = url ? { side, tile } : null;
  wake();
});
watch("value", read);

// ---- hands of the person

find(".play").onclick = () => (clock.playing ? go(clock.ms) : play());
find(".player input").oninput = ({ target }) => go(+target.value);
find(".speeds").onclick = ({ target }) => target.value && setSpeed(+target.value);
find(".map").ontoggle = wake;

stage.addEventListener("keydown", (event) => {
  const { key, shiftKey, target } = event;
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const isPress = key === " " || key === "Enter";
  if (target.closest(".panels, select") || (isPress && target.closest("button, summary, a"))) return; // theirs
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -run.cols, ArrowDown: run.cols };
  const keys = {
    " ": () => (clock.playing ? go(clock.ms) : play()),
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    Home: () => go(0),
    End: () => go(end()),
    Enter: () => openPanel("why"),
  };
  const act = shiftKey && key in moves ? () => movePick(moves[key]) : keys[key];
  if (!act) return;
  event.preventDefault();
  act();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector("#stop:not([disabled])")?.click();
});

// ---- what the page does by itself

async function listen() {
  if (stage.dataset.state !== "live" || performance.now() - lastHeard < SILENCE_MS) return;
  lost = await fetch("gradio_api/queue/status").then((reply) => !reply.ok, () => true);
  wake();
}

setInterval(listen, SILENCE_MS);
find(".map").open = window.innerWidth > 900;
build();
read();
for (const child of element.querySelectorAll("[data-wire]")) child.dispatchEvent(new Event("ask"));
