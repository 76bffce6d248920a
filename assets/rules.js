// What a lane would have done under another rule, with the same guesses and the same dice. Knows nothing of the page;
// visualize/whatif.py is its twin. A rule is one of
//   { schedule }                              keeps a guess of depth i with min(1, ω_i p/q); all ω 1: the exact rule
//   { delta or lam, neighbours, residual }    lets it borrow from its nearest codes: min(1, (p + borrowed)/q)

function chanceUnder(rule, guess) {
  if (rule.schedule) return Math.min(1, (rule.schedule[guess.depth - 1] * guess.p) / guess.q);
  return Math.min(1, (guess.p + borrowed(guess, lenders(rule, guess))) / guess.q);
}

const budget = (rule, { p }) => rule.delta ?? (rule.lam - 1) * p;
const borrowed = ({ masses }, count) => (count ? masses[count - 1] : 0);

// How many of the nearest codes lend: the longest run of them that stays within the budget.
function lenders(rule, guess) {
  const most = Math.min(rule.neighbours, guess.masses.length);
  let count = 0;
  while (count < most && guess.masses[count] <= budget(rule, guess)) count++;
  return count;
}

// Whether the budget reaches beyond the neighbours whose masses were kept, so that the chance is at least what is told.
function isOpenEnded(rule, guess) {
  if (rule.schedule || rule.neighbours <= guess.masses.length || lenders(rule, guess) < guess.masses.length) return false;
  const lent = borrowed(guess, guess.masses.length);
  return lent < budget(rule, guess) && guess.p + lent < guess.q;
}

// Whether a refused guess leaves another law to its later siblings than it did in the run.
function isLawMoved(rule, own, guess) {
  if (rule.schedule) return Math.min(1, rule.schedule[guess.depth - 1]) !== Math.min(1, own.schedule[guess.depth - 1]);
  return rule.residual !== "gstar" && lenders(rule, guess) !== lenders(own, guess);
}

// Of a round: the guesses that were judged, in that order; whether they are a chain; and those that an expectation
// counts. Sorted once, for a knob that moves asks of every round.
const walks = new WeakMap();
function walk(round) {
  const known = walks.get(round);
  if (known?.guesses === round.guesses.length) return known;
  const tried = round.guesses.filter((guess) => guess.judged).sort((a, b) => a.depth - b.depth || a.node - b.node);
  const isChain = round.guesses.every((guess, index) => !index || guess.depth > round.guesses[index - 1].depth);
  const told = { guesses: round.guesses.length, tried, isChain, counted: isChain ? round.guesses : tried };
  walks.set(round, told);
  return told;
}

// The first guess of a round that the rule decides otherwise; none where the law it is judged by is not known.
function firstChange(round, rule, own) {
  for (const guess of walk(round).tried) {
    const [was, is] = [own, rule].map((one) => guess.dice < chanceUnder(one, guess));
    if (was !== is) return guess;
    if (!is && isLawMoved(rule, own, guess)) return undefined;
  }
  return undefined;
}

// Guesses that one pass over a round keeps by expectation. A chain's are exact, for p and q are known beyond a refusal;
// of a tree only levels with judged guesses are counted.
function expectedKept(round, rule) {
  let [reach, kept, missed, depth] = [1, 0, 1, 1];
  for (const guess of walk(round).counted) {
    if (guess.depth > depth) [reach, kept, missed, depth] = [reach * (1 - missed), kept + reach * (1 - missed), 1, guess.depth];
    missed *= 1 - chanceUnder(rule, guess);
  }
  return kept + reach * (1 - missed);
}

// Tokens that a pass of a lane brings by expectation, over all but its first.
function expectedLength({ rounds }, rule) {
  return 1 + rounds.reduce((kept, round) => kept + (round.guesses.length && expectedKept(round, rule)), 0) / (rounds.length - 1);
}

// own: the rule of the run. length: tokens a pass by expectation; infidelity: what the tests gave beyond the exact rule,
// per token; changed: rounds that would end differently, each with its guess; open: guesses whose chance is at least
// what it is taken for.
function suppose(lane, rule, own) {
  const told = { length: expectedLength(lane, rule), infidelity: 0, rounds: 0, changed: [], open: 0 };
  for (const round of lane.rounds) {
    if (!round.guesses.length) continue;
    told.rounds++;
    const guess = firstChange(round, rule, own);
    if (guess) told.changed.push({ round, guess });
    for (const guess of round.guesses) {
      if (guess.judged) told.infidelity += Math.max(0, chanceUnder(rule, guess) - Math.min(1, guess.p / guess.q));
      told.open += isOpenEnded(rule, guess);
    }
  }
  told.infidelity /= lane.squares.length;
  return told;
}

// The uniform ω under which a lane's passes bring as many tokens as under a rule.
function uniformLike(lane, rule, depth) {
  const length = expectedLength(lane, rule);
  let [low, high] = [0, Math.max(1, ...rule.schedule)];
  for (let turn = 0; turn < 14; turn++) {
    const middle = (low + high) / 2;
    if (expectedLength(lane, { schedule: Array(depth).fill(middle) }) < length) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}
