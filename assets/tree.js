// The guesses of one pass as a tree: a column a square, a node a token. Tap a node for its numbers. For CASCADE also who
// may stand in for whom, what moves to a guess, and what other thresholds would have done with the same dice.

const CELL = { width: [54, 80], height: 46, head: 24, margin: 16 }; // pixels: a node's place, heads above, arcs at the right
const TERMS = { tau_level: "Alike in a level, τ", tau_parent: "Alike across levels, τ", delta: "Budget, δ" };
const grown = { lane: null, round: null, node: -1, key: "", moved: {} }; // what the panel shows, and which terms are moved

const make = (tag, name = "", text = "") => Object.assign(document.createElement(tag), { className: name, textContent: text });

// Whether two guesses of a round are for one square.
function isTree({ guesses }) {
  return guesses.some(({ square }, at) => at && guesses.findIndex((other) => other.square === square) < at);
}

function hasTrees(lane) {
  lane.treeAt ??= 0; // rounds looked at so far
  while (lane.treeAt < lane.rounds.length && !isTree(lane.rounds[lane.treeAt])) lane.treeAt++;
  return lane.treeAt < lane.rounds.length;
}

// The pass that placed the picked square, else the last one.
function shownRound(lane) {
  const isOurs = picked.lane === lane && picked.square >= 0 && picked.square < drawn(lane);
  return isOurs ? lane.squares[picked.square].round : lastRound(lane);
}

// Node -> [column, row]: leaves one below the other, a parent beside the middle of its children; -1 is the root.
function nodePlaces(guesses) {
  const places = new Map();
  let leaves = 0;
  const put = (node, depth) => {
    const rows = guesses.filter(({ parent }) => parent === node).map((child) => put(child.node, depth + 1));
    const row = rows.length ? (rows[0] + rows.at(-1)) / 2 : leaves++;
    places.set(node, [depth, row]);
    return row;
  };
  put(-1, 0);
  return places;
}

function showTree(box) {
  const lane = lead();
  const round = shownRound(lane);
  if (!box.firstChild) layTree(box);
  if (lane !== grown.lane) Object.assign(grown, { lane, moved: {} });
  if (round !== grown.round) Object.assign(grown, { round, node: -1 });
  const key = [run.lanes.indexOf(lane), lane.rounds.indexOf(round), picked.square, grown.node, JSON.stringify(grown.moved),
    isTold(), palette.length, sheet?.side, codebook?.length].join();
  const isMoved = Object.keys(grown.moved).length > 0;
  if (!isMoved) supposeOnMap();
  if (key === grown.key && (!isMoved || supposed)) return;
  grown.key = key;
  const isOpen = round.guesses.length > 0;
  for (const name of ["forest", "leaf", "terms"]) box.querySelector(`.${name}`).hidden = !isOpen;
  box.querySelector(".passed").textContent = isOpen
    ? `Pass ${round.passes}: ${round.guesses.length} guesses in one check, ${round.guesses.filter(isKept).length} kept. A column is a square, a branch one way to go on. Tap a guess.`
    : "This pass guessed nothing: it drew the first square. Pick another square.";
  if (!isOpen) return;
  if (!round.guesses.some(({ node }) => node === grown.node)) grown.node = firstNode(round);
  const terms = { ...settingsOf(lane), ...grown.moved };
  const tests = isCompared(round) ? cascadeTests(round, terms) : null;
  drawTree(box.querySelector(".wood"), round, tests, terms);
  tellKey(box.querySelector(".key"), tests);
  tellNode(box.querySelector(".leaf"), lane, round, tests, terms);
  box.querySelector(".terms").hidden = !isCompared(round);
  if (isCompared(round)) tellTerms(box.querySelector(".terms"), lane, round, terms);
  if (isMoved) showTermsOnMap(lane, terms);
}

function showTermsOnMap(lane, terms) {
  const [chances, squares] = [new Map(), []];
  for (const round of lane.rounds.filter(isCompared)) {
    const tests = cascadeTests(round, terms);
    const first = cascadeChange(round, settingsOf(lane), terms);
    if (first >= 0) squares.push(tests[first].guess.square);
    for (const { guess, chance } of tests) chances.set(guess, chance);
  }
  supposeOnMap((guess) => chances.get(guess) ?? guess.chance, squares);
}

// The guess kept for the picked square, else the last one tried there, else the first.
function firstNode({ guesses }) {
  const here = guesses.filter(({ square, judged }) => judged && square === picked.square);
  return (here.find(isKept) || here.at(-1) || guesses[0]).node;
}

function layTree(box) {
  box.classList.add("draft");
  box.innerHTML = `<p class="passed" aria-live="polite"></p>
    <div class="forest"><div class="wood" role="group" aria-label="Guesses of this pass. Arrow keys move along the branches."></div><p class="key"></p></div>
    <div class="leaf"></div>
    <div class="terms"><h4>Other terms, the same dice</h4><div class="sliders"></div><p class="replayed" aria-live="polite"></p>
    <div class="gauges"></div></div>`;
  for (const [name, words] of Object.entries(TERMS)) {
    const label = make("label", "", words);
    const input = Object.assign(document.createElement("input"), { type: "range", step: 0.01, min: name === "delta" ? 0 : -1, max: 1 });
    input.dataset.term = name;
    input.oninput = () => moveTerms({ [name]: +input.value });
    label.append(input, make("output"));
    box.querySelector(".sliders").append(label);
  }
  const back = Object.assign(make("button", "back", "As it was run"), { type: "button", onclick: () => moveTerms(null) });
  box.querySelector(".sliders").append(back);
  box.querySelector(".wood").onkeydown = walkTree;
}

function moveTerms(change) {
  grown.moved = change ? { ...grown.moved, ...change } : {};
  wake();
}

// Left to the parent, right to the first child, up and down within a column.
function walkTree(event) {
  const { guesses } = grown.round;
  const now = guesses.find(({ node }) => node === grown.node);
  const column = guesses.filter(({ depth }) => depth === now.depth);
  const beside = (by) => column[column.indexOf(now) + by];
  const next = {
    ArrowLeft: () => guesses.find(({ node }) => node === now.parent),
    ArrowRight: () => guesses.find(({ parent }) => parent === now.node),
    ArrowUp: () => beside(-1),
    ArrowDown: () => beside(1),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const found = next();
  if (found) chooseNode(found.node);
}

function chooseNode(node) {
  grown.node = node;
  showTree(panels.find(({ id }) => id === "tree").box);
  document.querySelector(`.wood [data-node="${node}"]`)?.focus();
}

const faceOf = (token) => (sheet ? sheet.tile(token) : colour(token));

function drawTree(box, round, tests, terms) {
  const { guesses } = round;
  const places = nodePlaces(guesses);
  const columns = 1 + Math.max(...guesses.map(({ depth }) => depth));
  const wide = Math.min(CELL.width[1], Math.max(CELL.width[0], (box.clientWidth - CELL.margin) / columns));
  const x = (node) => places.get(node)[0] * wide + wide / 2;
  const y = (node) => CELL.head + places.get(node)[1] * CELL.height + CELL.height / 2;
  const rows = 1 + Math.max(...[...places.values()].map(([, row]) => row));
  const [width, height] = [columns * wide + CELL.margin, CELL.head + rows * CELL.height];
  const trunk = make("div", "trunk");
  Object.assign(trunk.style, { width: `${width}px`, height: `${height}px` });
  const lines = guesses.flatMap((guess) => {
    const [from, to] = [[x(guess.parent), y(guess.parent)], [x(guess.node), y(guess.node)]];
    const path = `M${from}C${from[0] + 26} ${from[1]} ${to[0] - 26} ${to[1]} ${to}`;
    const name = isKept(guess) ? "kept" : guess.judged ? "refused" : "faint";
    if (!tests || !converges(round, guess, terms)) return [`<path class="${name}" d="${path}"/>`];
    return [`<path class="${name} twofold" d="${path}"/><path class="hollow" d="${path}"/>`];
  });
  const arcs = tests ? alikePairs(round, terms).map(([a, b]) => {
    const bend = 16 + Math.min(14, Math.abs(y(a) - y(b)) / 8);
    const at = [x(a) + 20, x(b) + 20];
    const curve = `M${at[0]} ${y(a)}C${at[0] + bend} ${y(a)} ${at[1] + bend} ${y(b)} ${at[1]} ${y(b)}`;
    if (![a, b].includes(grown.node)) return `<path class="alike" d="${curve}"/>`;
    const side = Math.sign(y(a === grown.node ? b : a) - y(grown.node));
    return `<path class="alike mine" d="${curve}"/><text x="${x(grown.node) + 31}" y="${y(grown.node) + 5 + 14 * side}">I</text>`;
  }) : [];
  const doubles = tests ? guesses.filter((guess) => converges(round, guess, terms) && guess.node === grown.node).map((guess) =>
    `<text class="c" x="${x(guess.node) - 33}" y="${y(guess.node) - 12}">C</text>`) : [];
  trunk.innerHTML = `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" aria-hidden="true">${[...lines, ...arcs, ...doubles].join("")}</svg>`;
  const heads = make("div", "heads");
  for (let depth = 0; depth < columns; depth++) {
    const head = make("span", "", depth ? `${round.start + depth}` : "token");
    head.style.width = `${wide}px`;
    heads.append(head);
  }
  trunk.prepend(heads);
  const root = make("i", "node root");
  root.style.background = round.start ? faceOf(grown.lane.squares[round.start - 1].token) : "none";
  put(root, -1);
  for (const guess of guesses) {
    const test = tests?.find((one) => one.guess === guess);
    put(nodeButton(guess, test), guess.node);
  }
  const { scrollTop, scrollLeft } = box;
  box.replaceChildren(trunk);
  box.scrollTop = round === grown.drawn ? scrollTop : y(grown.node) - box.clientHeight / 2;
  if (round === grown.drawn) box.scrollLeft = scrollLeft;
  grown.drawn = round;

  function put(node, at) {
    Object.assign(node.style, { left: `${x(at) - 20}px`, top: `${y(at) - 20}px` });
    trunk.append(node);
  }
}

// Pairs of a level that may stand in for one another.
function alikePairs(round, terms) {
  const found = round.guesses.flatMap((guess) => lendersOf(round, guess, terms).map(({ node }) => [guess.node, node]));
  const keys = new Set(found.map(([a, b]) => [Math.min(a, b), Math.max(a, b)].join()));
  return [...keys].map((key) => key.split(",").map(Number));
}

function nodeButton(guess, test) {
  const button = make("button", "node");
  const chance = test ? test.chance : guess.chance;
  const isOther = test && isKept(guess) !== guess.dice < chance;
  button.type = "button";
  button.dataset.node = guess.node;
  button.tabIndex = guess.node === grown.node ? 0 : -1;
  button.ariaPressed = String(guess.node === grown.node);
  button.classList.add(isKept(guess) ? "kept" : guess.judged ? "refused" : "faint");
  button.classList.toggle("other", Boolean(isOther));
  const verdict = !guess.judged ? "not judged" : `chance ${probability(chance)}, ${isKept(guess) ? "kept" : "refused"}`;
  button.ariaLabel = `Token ${guess.square + 1}, guess of code ${guess.token}: ${verdict}${isOther ? ", now the other way" : ""}`;
  if (guess.judged) button.style.setProperty("--ring", cividis(chance));
  button.innerHTML = `<b></b>${isOther ? "<em>⇄</em>" : guess.judged && !isKept(guess) ? "<em>×</em>" : ""}`;
  button.firstChild.style.background = faceOf(guess.token);
  button.onclick = () => chooseNode(guess.node);
  return button;
}

function tellKey(key, tests) {
  const ring = `<i class="scale" style="background:linear-gradient(to right, ${CIVIDIS.map((stop) => `rgb(${stop})`)})"></i>`;
  const alike = tests ? `<span><i class="arc"></i>I: interchangeable</span> <span><i class="double"></i>C: like its parent</span>` : "";
  const words = `<span>Ring: chance to be kept, 0 ${ring} 1</span> <span><i class="thick"></i>kept path</span>
    <span>× refused</span> <span>faint: never judged</span> ${alike}`;
  if (key.dataset.words !== words) key.innerHTML = key.dataset.words = words;
}

addPanel("tree", "Tree", () => {
  write(find('.reading [value="lender"]'), "hidden", !lead().rounds.some(isCompared));
  return hasTrees(lead());
}, showTree);
