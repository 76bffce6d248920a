// The square that a person picks: its sentence, its likeliest tokens; and the hint that there is something to pick.

let hintUsed = false; // where the browser keeps nothing for us, a page remembers for itself

function isHintUsed() {
  try {
    hintUsed ||= localStorage.getItem(HINT) === "used";
  } catch {} // storage is closed to us
  return hintUsed;
}

function pick(lane, square) {
  if (!seen || square < 0 || square >= run.total) return;
  Object.assign(picked, { lane, square });
  hintUsed = true;
  try {
    localStorage.setItem(HINT, "used");
  } catch {} // storage is closed to us
  wake();
}

function movePick(by) {
  pick(picked.lane, picked.square < 0 ? 0 : picked.square + by);
}

function explain() {
  const { lane, square } = picked;
  const isDrawn = square >= 0 && square < drawn(lane);
  const told = `${run.lanes.indexOf(lane)},${square},${isDrawn},${palette.length},${sheet?.side}`;
  if (told === picked.told) return;
  picked.told = told;
  find(".square").hidden = square < 0;
  find(".ask").hidden = square >= 0;
  if (square < 0) return;
  find(".whose").textContent = isDrawn ? `${lane.name}, pass ${lane.squares[square].round.passes}` : lane.name;
  find(".why").textContent = refer(run, lane, square);
  find(".likely").replaceChildren(...(isDrawn ? likely(lane, square) : []));
  if (!clock.playing) find(".square").scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

// What a square could have become: the likeliest tokens, and whichever others were guessed or drawn.
function likely(lane, square) {
  const top = lane.tops[square] || [];
  const shares = new Map([...Array(top.length / 2).keys()].map((at) => [top[2 * at], top[2 * at + 1]]));
  const tried = judged(lane, square);
  const { token } = lane.squares[square];
  for (const guess of tried) if (!shares.has(guess.token)) shares.set(guess.token, guess.p);
  if (!shares.has(token)) shares.set(token, undefined); // less likely than all that are told
  const roles = (other) => [other === token && "drawn", tried.some((guess) => guess.token === other) && "guessed"];
  return [...shares].map(([other, share]) => {
    const words = roles(other).filter(Boolean).join(", ");
    return bar(other, share, (share ?? 0) / (top[1] || 1), words);
  });
}

// A row: what a token looks like, how likely it was, what became of it.
function bar(token, share, width, words) {
  const row = document.createElement("li");
  row.innerHTML = `<b></b><div class="track"><i></i></div><span></span><em></em>`;
  const [look, track, number, role] = row.children;
  look.style.background = sheet ? sheet.tile(token) : colour(token);
  track.firstChild.style.width = `${Math.min(100, 100 * width)}%`;
  number.textContent = share === undefined ? "" : percent(share);
  role.textContent = words;
  return row;
}

addPanel("why", "Why", () => true, explain);
