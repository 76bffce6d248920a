// What the stage says: sentences for a person, made from a run. Knows nothing of the page.

const seconds = (ms) => (ms / 1000).toFixed(2);
const place = (run, square) => `row ${Math.floor(square / run.cols) + 1}, column ${(square % run.cols) + 1}`;

function percent(share) {
  if (share < 0.0005) return "<0.1 %";
  return share < 0.0995 ? `${(100 * share).toFixed(1)} %` : `${Math.round(100 * share)} %`;
}

function probability(value) {
  if (value > 0 && value < 0.0001) return "under 0.0001";
  return value < 0.1 ? String(+value.toPrecision(2)) : value.toFixed(2);
}

// Two numbers, each short, but with as many decimals as it takes to tell them apart.
function apart(...pair) {
  if (probability(pair[0]) !== probability(pair[1])) return pair.map(probability);
  const decimals = [3, 4, 5].find((count) => pair[0].toFixed(count) !== pair[1].toFixed(count)) ?? 5;
  return pair.map((value) => value.toFixed(decimals));
}

// How a square got its token.
function why(run, lane, square) {
  const { token, fate } = lane.squares[square];
  const tried = judged(lane, square);
  const start = `Token ${square + 1}, ${place(run, square)}: `;
  if (!tried.length) {
    const at = lane.tops[square]?.indexOf(token) ?? -1;
    const known = at % 2 === 0 ? ` It had p ${probability(lane.tops[square][at + 1])}.` : "";
    if (fate !== "x") return `${start}drawn from the model's own law; nothing was guessed for it.${known}`;
    return `${start}all guesses before it were kept, so the same pass drew one more token, without a guess.${known}`;
  }
  const name = (index) => (tried.length < 2 ? "the guess" : `guess ${index + 1}`);
  const told = tried.map((guess, index) => {
    const [chance, dice] = apart(guess.chance, guess.dice);
    const numbers = `${name(index)} had p ${probability(guess.p)} and q ${probability(guess.q)}`;
    const end = guess.dice < guess.chance ? "kept" : "refused";
    const lent = fate === "l" && end === "kept" ? " Without the loosened rule it would have been refused." : "";
    return `${numbers}, so the chance to keep it was ${chance}; the dice showed ${dice}: ${end}.${lent}`;
  });
  const after = fate === "r" ? " Another token was drawn in its place." : "";
  return start + told.join(" ").replaceAll(". guess", ". Guess") + after;
}

function refer(run, lane, square) {
  const shown = square < drawn(lane);
  if (!shown) return `Square ${square + 1}, ${place(run, square)}: not drawn yet.`;
  return why(run, lane, square);
}

// ---- the end of a race

function ratio(slow, fast, what) {
  const factor = slow / fast;
  if (factor > 1.05) return `${factor.toFixed(1)}× fewer ${what}`;
  return factor < 1 / 1.05 ? `${(1 / factor).toFixed(1)}× more ${what}` : `about as many ${what}`;
}

// No number before every lane has come to its end.
function verdict(run) {
  const [base, ...others] = run.lanes;
  if (!others.length || !run.lanes.every((lane) => isOver(lane))) return "";
  if (!run.lanes.every((lane) => lane.reason === "done")) return "Not compared: not every picture came to its end.";
  const [ms, passes] = [length(base), lastRound(base).passes];
  return others.map((lane) => compare(base.name, ms, passes, lane)).join(" ");
}

function compare(name, ms, passes, lane) {
  const [own, checks] = [length(lane), lastRound(lane).passes];
  const calls = ratio(passes, checks, "passes");
  if (own <= ms * 1.05) return `${lane.name} against ${name} in this race: ${ratio(ms, own, "seconds")}, ${calls}.`;
  const reason = passes > 1.05 * checks ? " Passes are cheap in this small model." : "";
  return `Slower here: ${lane.name} took ${(own / ms).toFixed(1)}× the seconds of ${name}, with ${calls}.${reason}`;
}

// ---- where a run stands

const counts = (run) => run.lanes.map((lane) => lane.squares.length).join(" AND ");

function badge(run, is) {
  const { device, date } = run.about.recorded ?? {};
  const at = run.lanes.length > 1 ? `${counts(run)} OF ${run.total}` : `${counts(run)}/${run.total}`;
  return {
    empty: "NOTHING DRAWN YET",
    recorded: `RECORDED on ${device}, ${date}`,
    live: "LIVE",
    done: "DONE",
    stopped: `STOPPED AT ${at}`,
    broken: `BROKE OFF AT ${at}`,
    lost: `CONNECTION LOST AT ${at}`,
  }[is];
}

function report(run, is) {
  const row = (lane) => Math.min(run.rows, Math.floor(lane.squares.length / run.cols) + 1);
  const rows = run.lanes.map((lane) => `${lane.name} row ${row(lane)}`).join(", ");
  return {
    empty: "",
    recorded: `“${run.about.prompt}”, seed ${run.about.seed}; each lane at its measured speed.`,
    live: run.lanes.length > 1 ? `Drawing ${rows} of ${run.rows}.` : `Drawing row ${row(run.lanes[0])} of ${run.rows}.`,
    done: `“${run.about.prompt}”, seed ${run.about.seed}: all squares are drawn.`,
    stopped: "What is drawn stays. Start draws anew.",
    broken: run.lanes.map((lane) => lane.reason).find((reason) => !["", "done", "stopped"].includes(reason)),
    lost: "The server does not answer. What is drawn stays; load the page anew to go on.",
  }[is];
}

function describe(run, lane) {
  const what = run.about.prompt ? `“${run.about.prompt}”: ` : "";
  const { end, passes, ms } = lastRound(lane);
  return `${what}${end} of ${run.total} squares drawn by ${lane.name || "the model"}, ${passes} passes, ${seconds(ms)} s`;
}

function describeMap(run, lane) {
  const fates = lane.squares.slice(0, drawn(lane)).map((square) => square.fate);
  const count = (fate) => fates.filter((other) => other === fate).length;
  const lent = count("l") ? `, ${count("l")} kept by the loosened rule only` : "";
  return `How sure the check of ${lane.name} was: ${count("k")} guesses kept${lent}, ${count("r")} squares redrawn, ${count("x")} extra`;
}
