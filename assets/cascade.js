// CASCADE's tests of a round under other thresholds and another budget, the dice as they fell; the same in Python is
// visualize/cascade_whatif.py, which says what can be told.

const PARENT = -2; // as a lender
const isKept = (guess) => guess.judged && guess.dice < guess.chance;

// Which cosines a round tells of: each node with its parent, then any two of a level, the earlier first.
function cosinePairs(guesses) {
  const own = guesses.map(({ node, parent }) => [node, parent]);
  const level = guesses.flatMap((one, at) =>
    guesses.slice(at + 1).filter((other) => other.depth === one.depth).map((other) => [one.node, other.node]),
  );
  return [...own, ...level];
}

// (a, b) -> cosine of two nodes that the round compared, undefined for others; -1 is the root.
function cosinesOf(round) {
  round.cosines ||= new Map(cosinePairs(round.guesses).map((pair, at) => [pair.join(), round.notes.alike.values[at]]));
  return (a, b) => round.cosines.get(`${a},${b}`) ?? round.cosines.get(`${b},${a}`);
}

const isCompared = (round) => Boolean(round.notes.alike && round.notes.offers);

// Guesses of the level that may stand in for one, the most alike first, one for each other token.
function lendersOf(round, guess, terms) {
  if (terms.interchange === "off") return [];
  const cosine = cosinesOf(round);
  const near = round.guesses
    .filter((other) => other.depth === guess.depth && other.token !== guess.token)
    .filter((other) => cosine(guess.node, other.node) >= terms.tau_level)
    .filter((other) => terms.scope === "level" || other.parent === guess.parent)
    .sort((a, b) => cosine(guess.node, b.node) - cosine(guess.node, a.node) || a.node - b.node);
  return near.filter((other, at) => near.findIndex(({ token }) => token === other.token) === at);
}

const converges = (round, guess, terms) =>
  terms.converge === "on" && cosinesOf(round)(guess.node, guess.parent) >= terms.tau_parent;

// Every judged guess anew: { guess, strict, chance, loans: [{ lender, offered, used }], moved, spent }, spent being
// what all tests so far were granted beyond the exact rule. terms: the settings of a run, some of them moved.
function cascadeTests(round, terms) {
  const { judged, offers, parent_offer: above } = round.notes;
  const whose = new Map(round.guesses.map((guess) => [guess.node, guess]));
  const count = offers.shape[1];
  let spent = 0;
  return judged.values.map((node, index) => {
    const guess = whose.get(node);
    const { p, q } = guess;
    const strict = Math.min(1, p / q);
    const loans = [];
    let [left, held] = [terms.delta, p];
    const lend = (lender, offered) => {
      const used = Math.min(offered, left);
      loans.push({ lender, offered, used });
      left -= used;
      held += used;
    };
    for (const lender of lendersOf(round, guess, terms)) lend(lender.node, offers.values[index * count + lender.node]);
    const offer = above.values[index];
    if (converges(round, guess, terms) && offer > 0) lend(PARENT, Math.min(offer, Math.max(0, 1 - held)));
    const moved = loans.reduce((sum, { used }) => sum + used, 0);
    let chance = Math.min(1, (p + moved) / q);
    if (terms.budget === "step") chance = Math.min(chance, strict + Math.max(0, terms.delta - spent));
    if (terms.temperature < 1e-4) chance = +(chance === 1 || (terms.budget === "test" && chance > 0.5));
    if (strict === 1) chance = 1;
    spent += Math.max(0, chance - strict);
    return { guess, strict, chance, loans, moved, spent };
  });
}

// Which test is the first whose decision differs with the same dice, -1 where all that can be told are the same.
function cascadeChange(round, before, after) {
  const news = cascadeTests(round, after);
  for (const [index, old] of cascadeTests(round, before).entries()) {
    const { dice } = old.guess;
    const { chance } = news[index];
    if (dice < old.chance !== dice < chance) return index;
    if (before.residual === "gstar" && dice >= old.chance && old.chance !== chance) return -1; // p is another from here
  }
  return -1;
}

const settingsOf = (lane) => run.about.lanes?.[run.lanes.indexOf(lane)]?.settings || {};

// Who lent for a kept guess: "k" where nobody had to, "I" guesses of its level, "C" its parent, "B" both; undefined for
// other squares.
function lentBy(lane, square) {
  const { fate, round } = lane.squares[square];
  if (!isCompared(round) || !"kl".includes(fate)) return undefined;
  if (fate === "k") return "k";
  const kept = cascadeTests(round, settingsOf(lane)).find(({ guess }) => guess.square === square && isKept(guess));
  const used = (kept?.loans ?? []).filter((loan) => loan.used > 0);
  const [level, parent] = [used.some(({ lender }) => lender >= 0), used.some(({ lender }) => lender === PARENT)];
  return level && parent ? "B" : level ? "I" : parent ? "C" : undefined;
}
