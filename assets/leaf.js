// What the Tree panel tells of one guess: its numbers, what its siblings' refusals left, what moved to it, and how the
// guesses for the same square look in place. And of the run: what other thresholds would have done with the same dice.

const SLICES = ["#ee7733", "#33bbee", "#cc3311", "#009988", "#ee3377", "#bbbbbb"]; // lenders in the order of spending

let codebook = null; // [V] rows of a code's vector, once the server has sent them
element.addEventListener("codebook", ({ detail }) => {
  const [width, scale, digits] = detail.split(",");
  const bytes = Uint8Array.from(atob(digits || ""), (letter) => letter.charCodeAt(0));
  const row = (at) => Array.from(bytes.subarray(at * width, (at + 1) * width), (byte) => (byte - 128) * scale);
  codebook = digits ? Array.from({ length: bytes.length / width }, (_, at) => row(at)) : null;
  wake();
});
const codeDistance = (a, b) => Math.hypot(...codebook[a].map((value, at) => value - codebook[b][at]));

function tellNode(box, lane, round, tests, terms) {
  const guess = round.guesses.find(({ node }) => node === grown.node);
  const test = tests?.find((one) => one.guess === guess);
  const parts = [make("h4", "", `Token ${guess.square + 1}, ${place(run, guess.square)}: guess of code ${guess.token}`)];
  parts.push(make("p", "tale", [ownTale(guess, test), siblingTale(lane, round, guess, tests)].filter(Boolean).join(" ")));
  if (test) parts.push(transfer(round, test, terms));
  parts.push(...manyBlues(lane, round, guess, tests));
  box.replaceChildren(...parts);
}

function ownTale(guess, test) {
  const numbers = `It had p ${probability(guess.p)} and q ${probability(guess.q)}`;
  if (!guess.judged) {
    const parent = grown.round.guesses.find(({ node }) => node === guess.parent);
    const reason = parent && !isKept(parent) ? "the guess before it was not kept" : "one of its elder siblings was kept";
    return `${numbers}. It was never judged: ${reason}.`;
  }
  const [chance, dice] = apart(guess.chance, guess.dice);
  const strict = probability(Math.min(1, guess.p / guess.q));
  const rule = test ? "with what others lend it was" : "by this method’s rule it was";
  const alone = strict === probability(guess.chance) ? `so the chance to keep it was ${chance}` : `alone a chance of ${strict}; ${rule} ${chance}`;
  const told = `${numbers}, ${alone}; the dice showed ${dice}: ${isKept(guess) ? "kept" : "refused"}.`;
  if (!test || !Object.keys(grown.moved).length) return told;
  const end = guess.dice < test.chance ? "kept" : "refused";
  return `${told} Under the moved terms the chance is ${probability(test.chance)}: ${end}.`;
}

// How refusals of elder siblings changed the laws that a guess was judged by.
function siblingTale(lane, round, guess, tests) {
  const family = round.guesses.filter(({ parent }) => parent === guess.parent);
  const refused = family.slice(0, family.indexOf(guess)).filter((other) => other.judged && !isKept(other));
  if (!refused.length || (!guess.judged && family.some(isKept))) return "";
  const before = lawBefore(lane, round, guess, family[0]);
  const who = refused.length > 1 ? `its ${refused.length} elder siblings were refused` : "its elder sibling was refused";
  const isCertain = family.every(({ q }) => q === 1);
  const how = isCertain ? "a refusal takes that code out of p" : "a refusal takes from p, code by code, what q covers";
  const own = isCertain ? "" : " q is the drafter’s law without them, scaled up too.";
  const left = before === undefined ? `p is what was left` : `p of this code went from ${apart(before, guess.p).join(" to ")}`;
  return `Before it ${who}: ${how} and scales up the rest, so ${left}.${own}`;
}

// What the target gave a guess's code before any refusal, where that is told.
function lawBefore(lane, round, guess, eldest) {
  const { judged: order, offers } = round.notes;
  const at = order && offers ? order.values.indexOf(eldest.node) : -1;
  if (at >= 0) return offers.values[at * offers.shape[1] + guess.node];
  const isOnPath = guess.parent < 0 || isKept(round.guesses.find(({ node }) => node === guess.parent));
  const top = (isOnPath && lane.tops[guess.square]) || [];
  const found = top.findIndex((token, place) => place % 2 === 0 && token === guess.token);
  return found < 0 ? undefined : top[found + 1];
}

// Three tracks of one scale: p and what moved to it, the budget, and the dice against the chances.
function transfer(round, test, terms) {
  const { guess, loans } = test;
  const box = make("div", "transfer");
  const used = loans.filter((loan) => loan.used > 0);
  const part = (share, background, name = "") => Object.assign(make("i", name), { style: `width:${100 * Math.min(1, share)}%;background:${background}` });
  const slices = used.map(({ used: share }, at) => part(share, SLICES[Math.min(at, 5)], `slice s${at % 3}`));
  const spent = terms.budget === "step" ? test.spent : test.moved;
  const rows = [
    ["p → p_R", [part(guess.p, "#004488"), ...slices], `${probability(guess.p)} → ${probability(guess.p + test.moved)}`],
    [`budget δ ${terms.delta}`, [part(spent, "#ddaa33"), Object.assign(make("u"), { style: `left:${100 * Math.min(1, terms.delta)}%` })],
      `spent ${probability(spent)}${terms.budget === "step" ? " in the pass so far" : ""}`],
    ["dice ▼", [part(test.strict, "#004488"), part(Math.max(0, test.chance - test.strict), "#ddaa33", "slice s0"),
      Object.assign(make("s", "", "▼"), { style: `left:${100 * guess.dice}%` })],
      `${probability(guess.dice)} against ${test.chance > test.strict ? `${probability(test.strict)} strictly, ${probability(test.chance)} granted` : probability(test.chance)}`],
  ];
  for (const [name, parts, words] of rows) {
    const track = make("div", "track wide");
    track.append(...parts);
    box.append(make("span", "", name), track, make("span", "words", words));
  }
  const list = make("p", "lenders", used.length ? "Lent by " : "Nobody lends to it.");
  used.forEach(({ lender, used: share }, at) => {
    const node = lender === PARENT ? guess.parent : lender;
    const token = node < 0 ? grown.lane.squares[round.start - 1]?.token : round.guesses.find((other) => other.node === node).token;
    const face = Object.assign(make("b"), { style: `border-color:${SLICES[Math.min(at, 5)]}` });
    if (token !== undefined) face.style.background = faceOf(token);
    const item = make("span");
    item.append(face, ` ${lender === PARENT ? "its parent (C)" : `code ${token} (I)`}: ${probability(share)}`);
    list.append(item);
  });
  box.append(list);
  return box;
}

// The guesses for one square as they would stand there: the square, what lies above it and to its left.
function manyBlues(lane, round, guess, tests) {
  const level = round.guesses.filter(({ depth }) => depth === guess.depth);
  if (level.length < 2) return [];
  const cosine = tests ? cosinesOf(round) : () => undefined;
  const table = make("table", "blues");
  const marks = [tests && "state alike", codebook && "code apart"].filter(Boolean);
  table.innerHTML = `<thead><tr>${["in place", "p", "q", "chance", ...marks].map((name) => `<th scope="col">${name}</th>`).join("")}</tr></thead><tbody></tbody>`;
  for (const other of level) {
    const alike = other === guess ? 1 : cosine(guess.node, other.node);
    const apartBy = codebook && codeDistance(guess.token, other.token);
    const row = make("tr", other === guess ? "mine" : "");
    const cells = [probability(other.p), probability(other.q), other.judged ? probability(other.chance) : "–"];
    if (tests) cells.push(alike.toFixed(2));
    if (codebook) cells.push(apartBy.toFixed(2));
    const first = make("td");
    first.append(patchOf(lane, round, other));
    row.append(first, ...cells.map((text) => make("td", "", text)));
    table.tBodies[0].append(row);
  }
  const words = `Guesses for token ${guess.square + 1}, in place among the squares above and to the left.`;
  const state = tests ? " State: cosine of what the model thinks after it and after the one tapped." : "";
  const code = codebook ? " Code: their distance in the codebook, all that a fixed list of neighbours knows." : "";
  const scroll = make("div", "sideways");
  scroll.append(table);
  return [make("h4", "", "Many blues"), make("p", "ask", words + state + code), scroll];
}

function patchOf(lane, round, guess) {
  const ancestors = new Map();
  for (let at = guess; at; at = round.guesses.find(({ node }) => node === at.parent)) ancestors.set(at.square, at.token);
  const column = guess.square % run.cols;
  const patch = make("span", "patch");
  for (const [up, right] of [[1, -1], [1, 0], [1, 1], [0, -1], [0, 0], [0, 1]]) {
    const square = guess.square - up * run.cols + right;
    const isThere = square >= 0 && square <= guess.square && column + right >= 0 && column + right < run.cols;
    const token = ancestors.get(square) ?? (isThere && square < round.start ? lane.squares[square].token : undefined);
    const cell = make("i", square === guess.square ? "own" : "");
    if (isThere && token !== undefined) cell.style.background = faceOf(token);
    patch.append(cell);
  }
  return patch;
}

// ---- other terms, the same dice

function tellTerms(box, lane, round, terms) {
  for (const input of box.querySelectorAll("input")) {
    write(input, "value", String(terms[input.dataset.term]));
    write(input.nextSibling, "textContent", terms[input.dataset.term].toFixed(2));
  }
  const isMoved = Object.keys(grown.moved).length > 0;
  box.querySelector(".back").disabled = !isMoved;
  const own = settingsOf(lane);
  const passes = lane.rounds.filter(isCompared);
  const changed = passes.filter((one) => cascadeChange(one, own, terms) >= 0);
  const here = cascadeChange(round, own, terms);
  const guess = here >= 0 && cascadeTests(round, terms)[here].guess;
  const now = guess && `the guess of code ${guess.token} for token ${guess.square + 1} would be ${isKept(guess) ? "refused" : "kept"}; past it the numbers are chances, not outcomes`;
  box.querySelector(".replayed").textContent = isMoved
    ? `With the same dice ${changed.length} of ${passes.length} passes would end differently. In this one ${now || "nothing changes"}. Later passes keep the path that was drawn.`
    : "Move a slider: every chance is worked out anew, and the dice stay as they fell.";
  const replays = passes.map((one) => cascadeTests(one, terms));
  const all = replays.flat();
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / (values.length || 1);
  const [moved, spent] = [mean(all.map((test) => test.moved)), mean(replays.map((tests) => tests.at(-1)?.spent ?? 0))];
  const worst = Math.max(0, ...replays.map((tests) => tests.at(-1)?.spent ?? 0));
  const bound = terms.budget === "step"
    ? "The budget is for a pass, so no pass spends more than δ, and what it draws strays by δ at most."
    : `The budget is for each test, so a pass may spend more: here up to ${probability(worst)}.`;
  box.querySelector(".gauges").replaceChildren(
    gauge("Moved by the rule", moved, terms.delta, "probability moved to a guess, the mean over tests"),
    gauge("Spent of the bound", spent, terms.delta, "chance granted beyond the exact rule, the mean over passes"),
    make("p", "ask", bound),
  );
}

function gauge(name, value, delta, words) {
  const box = make("div", "gauge");
  const track = make("div", "track wide");
  track.append(Object.assign(make("i"), { style: `width:${100 * Math.min(1, value)}%;background:#ddaa33` }));
  track.append(Object.assign(make("u"), { style: `left:${100 * Math.min(1, delta)}%` }));
  box.append(make("b", "", name), track, make("span", "words", `${probability(value)} of δ ${delta}: ${words}`));
  return box;
}
