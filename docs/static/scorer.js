// Scores of search results: pages and their headings come before documented objects.
var Scorer = {
  objNameMatch: 6,
  objPartialMatch: 2,
  objPrio: { 0: 3, 1: 0, 2: -3 },
  objPrioDefault: 0,
  title: 20,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
};
