"""How the pages look: on a desk, on a phone, in the dark and on paper. Fonts are the reader's own."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #5b6570; --line: #d5dae0; --ground: #ffffff;
  --panel: #f5f7f9; --accent: #00599c; --answer: #eaf3fb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a3adb8; --line: #3b434b; --ground: #15181b;
  --panel: #1e2226; --accent: #7cc0f5; --answer: #17293a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.2rem 1rem 4rem; max-width: 62rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .2em 0 .5em; }
h2 { font-size: 1.3rem; line-height: 1.25; margin: 2.4em 0 .5em; padding-top: .5em; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.6em 0 .4em; }
p, ul, ol, dl { max-width: 46rem; margin: .6em 0; }
a { color: var(--accent); }
.lead { max-width: none; margin: 0 0 1.2rem; padding: .8rem 1rem; background: var(--answer);
  border-left: .3rem solid var(--accent); font-size: 1.15rem; line-height: 1.45; }
.lead p { max-width: none; margin: 0; }
.lead p + p { margin-top: .5em; font-size: 1rem; }
.note { color: var(--soft); font-size: .92rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none; padding: 0; max-width: none; }
figure { margin: 1.2rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line);
  border-radius: .3rem; padding: .3rem; }
figcaption { margin-top: .4em; max-width: 46rem; color: var(--soft); font-size: .92rem; }
.tabular figcaption { margin: 0; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--tile)), 1fr)); gap: 1rem; }
.gallery figure { margin: 0; }
.gallery img { width: 100%; }
.pixels { image-rendering: pixelated; }
.table { overflow-x: auto; margin: .4rem 0 1.2rem; max-width: 100%; }
.table:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3em .7em; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; white-space: nowrap; }
th.right, td.right { text-align: right; white-space: nowrap; }
details { margin: 1rem 0; padding: .4rem .8rem; background: var(--panel); border-radius: .3rem; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; padding: .7rem; background: var(--panel); border-radius: .3rem; font-size: .85rem; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .25em 1em; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
@media (max-width: 34rem) { body { padding: .8rem .8rem 3rem; } h1 { font-size: 1.4rem; } .lead { font-size: 1.05rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5em; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --ground: #fff; --panel: #fff;
  --accent: #000; --answer: #fff; } body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  h2, h3, .tabular figcaption { break-after: avoid; } figure:not(.tabular), tr { break-inside: avoid; }
  .table { overflow: visible; }
  table { font-size: 8pt; } details::details-content { content-visibility: visible; block-size: auto; } }
"""
