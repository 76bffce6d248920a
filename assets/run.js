// What a run tells: its event text (visualize/events.py says what the lines mean) as lanes, rounds, squares, guesses.
// Knows nothing of the page. The first of the stage's files.

function openRun(rows, cols, names) {
  const lane = (name) => ({ name, rounds: [], squares: [], tops: [], reason: "", at: 0 });
  return { rows, cols, total: rows * cols, about: {}, lanes: names.map(lane) };
}

// Takes one line; gives the run, a new one after an H line.
function takeLine(run, line) {
  const cells = line.split(",");
  const [kind, index] = cells;
  if (kind === "H") return openRun(+cells[1], +cells[2], cells.slice(3));
  if (kind === "I") run.about = JSON.parse(line.slice(2));
  const lane = run?.lanes[index];
  if (!lane) return run;
  const round = lane.rounds.at(-1);
  if (kind === "R") {
    const [number, start, ms, passes, draft, target] = cells.slice(2).map(Number);
    lane.rounds.push({ number, start, ms, passes, draft, target, guesses: [], notes: {}, end: lane.squares.length });
  }
  if (kind === "N") {
    const [node, parent, token, p, q] = cells.slice(3, 8).map(Number);
    const above = parent < 0 ? { square: round.start - 1, depth: 0 } : round.guesses.find((guess) => guess.node === parent);
    const [square, depth] = [above.square + 1, above.depth + 1];
    round.guesses.push({ node, parent, square, depth, token, p, q, judged: cells[8] !== "", chance: +cells[8], dice: +cells[9] });
  }
  if (kind === "M") {
    const [name, shape, ...values] = cells.slice(3);
    const note = { shape: shape.split("x").map(Number), values: values.map((text) => (text ? +text : NaN)) };
    round.notes[name] = note;
    if (name === "masses") for (const guess of round.guesses) guess.masses = noteRow(note, guess.node);
  }
  if (kind === "T") lane.tops[cells[2]] = cells.slice(3).map(Number);
  if (kind === "C") {
    lane.squares[cells[2]] = { token: +cells[3], fate: cells[4], round };
    round.end = lane.squares.length;
  }
  if (kind === "E") lane.reason = cells.slice(2).join(",");
  return run;
}

// One row of a note of two axes.
const noteRow = ({ shape, values }, index) => values.slice(index * shape[1], (index + 1) * shape[1]);

// ---- what a lane has done by `ms` of its own clock: `at` counts the rounds that are over

function seek(lane, ms) {
  while (lane.at < lane.rounds.length && lane.rounds[lane.at].ms <= ms) lane.at++;
  while (lane.at && lane.rounds[lane.at - 1].ms > ms) lane.at--;
}

const lastRound = (lane) => lane.rounds[lane.at - 1] || { ms: 0, passes: 0, end: 0, guesses: [] };
const drawn = (lane) => lastRound(lane).end;
const isOver = (lane) => lane.reason !== "" && lane.at === lane.rounds.length;
const length = (lane) => lane.rounds.at(-1)?.ms ?? 0; // of its own clock, as far as told
const isGuessing = (lane) => !lane.name.startsWith("AR"); // with nothing to guess there is nothing to accept

// The guesses tried for a square in the round that settled it.
function judged(lane, square) {
  return lane.squares[square].round.guesses.filter((guess) => guess.judged && guess.square === square);
}

// The chance that some guess for a square is kept, undefined where none was tried. chanceOf: of one guess.
function acceptance(lane, square, chanceOf = (guess) => guess.chance) {
  const tried = judged(lane, square);
  return tried.length ? 1 - tried.reduce((refused, guess) => refused * (1 - chanceOf(guess)), 1) : undefined;
}

// The guesses that the next pass checks; where it is not told yet, those that the last one left over.
function pending(lane) {
  const { guesses: open } = lane.rounds[lane.at] || lastRound(lane);
  return isOver(lane) ? [] : open.filter((guess) => guess.square >= drawn(lane));
}
