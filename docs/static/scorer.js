// Scores of search results: headings that are the words typed, then pages, then documented objects. Chinese words are in
// Chinese pages only, and other words are looked up in English pages first.
var Scorer = {
  score: ([page, , , , score, , kind]) => score + (kind === "title" ? 10 : 0) - (page.includes("/zh/") ? 30 : 0),
  objNameMatch: 6,
  objPartialMatch: 2,
  objPrio: { 0: 3, 1: 0, 2: -3 },
  objPrioDefault: 0,
  title: 20,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
};
