// Rank headings and pages for users first, and internal modules last.
// biome-ignore lint/correctness/noUnusedVariables: Sphinx reads this global.
var Scorer = {
  score: (result) => {
    const [page, , , , score, , kind] = result;
    if (page === "internals") return score - 300;
    if (kind === "object") return score + 20;
    if (page === "start" || page === "recipes") return score + 30;
    if (page.startsWith("gallery/")) return score + 20;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 200,
  partialTitle: 20,
  term: 5,
  partialTerm: 2,
};
