"""What the explorer is made of before its script fills it, and how it looks."""

STYLE = """
body { max-width: 76rem; }
.strip { display: flex; gap: .35rem; overflow-x: auto; padding: .3rem .1rem .5rem; scrollbar-width: thin; }
.strip button { flex: 0 0 auto; padding: 2px; border: 2px solid transparent; border-radius: .35rem; background: none;
  cursor: pointer; position: relative; line-height: 0; }
.strip button[aria-pressed=true] { border-color: var(--accent); }
.strip img { width: 52px; height: 52px; object-fit: contain; border-radius: .2rem; }
.strip .wrong::after { content: "\\00d7"; position: absolute; right: 3px; top: 3px; width: 1rem; height: 1rem;
  font: bold .8rem/1rem system-ui, sans-serif; text-align: center; color: #fff; background: #b3261e;
  border-radius: 50%; }
.tools { display: flex; flex-wrap: wrap; gap: .4rem .8rem; align-items: center; margin: .5rem 0; }
.tools img { width: 84px; height: 84px; object-fit: contain; border-radius: .3rem; image-rendering: pixelated; }
.tools .what { flex: 1 1 12rem; min-width: 0; }
.explorer button, .explorer select { font: inherit; font-size: .92rem; color: var(--ink); background: var(--panel);
  border: 1px solid var(--line); border-radius: .35rem; padding: .28rem .6rem; min-height: 2.1rem; cursor: pointer; }
.explorer button[aria-pressed=true] { background: var(--accent); border-color: var(--accent); color: var(--ground); }
.explorer button:focus-visible, .explorer select:focus-visible, .explorer canvas:focus-visible
  { outline: 3px solid var(--accent); outline-offset: 2px; }
.explorer .strip button { background: none; min-height: 0; padding: 2px; border-width: 2px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.2rem; }
.panel { min-width: 0; padding: .8rem; background: var(--panel); border-radius: .5rem; }
.panel .row { display: flex; flex-wrap: wrap; gap: .3rem; align-items: center; margin: .45rem 0; }
.explorer .panel button, .explorer .panel select { background: var(--ground); }
.explorer .panel button[aria-pressed=true] { background: var(--accent); }
.panel select { max-width: 100%; min-width: 0; flex: 1 1 12rem; }
.panel .says { margin: .4rem 0; max-width: none; min-height: 1.6em; }
.panel canvas { display: block; max-width: 100%; }
.panel .main { width: 100%; max-width: 32rem; margin: 0 auto; cursor: crosshair; touch-action: pan-y;
  border-radius: .3rem; }
.panel .all { width: 100%; cursor: pointer; }
.panel .bar { display: grid; grid-template-columns: auto 1fr auto; gap: .5rem; align-items: center; font-size: .85rem;
  font-variant-numeric: tabular-nums; max-width: 32rem; margin: .4rem auto; }
.panel .bar canvas { width: 100%; height: .8rem; border-radius: .2rem; }
.panel .readout { font-variant-numeric: tabular-nums; margin: .4rem 0; max-width: none; min-height: 4.7em; }
.panel .readout b { white-space: nowrap; }
.right { color: #1a7f37; } .wrong-text { color: #b3261e; }
@media (prefers-color-scheme: dark) { .right { color: #6fd08c; } .wrong-text { color: #ff9c94; } }
.count { min-width: 6.4em; text-align: center; font-variant-numeric: tabular-nums; }
.panel .heads { gap: .2rem; } .panel .heads button { padding: .2rem .45rem; min-width: 2.1rem; }
.panel h3 { margin: 0; font-size: 1rem; } .panel .small { font-size: .85rem; color: var(--soft); margin: .3rem 0; }
.panel details { background: none; padding: 0; margin: .4rem 0 0; }
.numbers { overflow: auto; max-height: 22rem; } .numbers td, .numbers th { padding: .1em .4em; font-size: .75rem; }
.numbers td.here { outline: 2px solid var(--accent); }
kbd { font: .85em ui-monospace, monospace; padding: 0 .35em; border: 1px solid var(--line); border-radius: .25rem;
  background: var(--panel); }
.keys { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
"""

BODY = """
<div class="explorer" id="explorer">
  <div class="strip" id="strip" role="group" aria-label="Images"></div>
  <div class="tools">
    <img id="clear" alt="">
    <span class="what" id="what"></span>
    <button type="button" id="read" aria-pressed="false"
      title="Start from what the classifier reads, instead of a patch (C)">What the classifier reads</button>
    <button type="button" id="hold" aria-pressed="false"
      title="Keep this patch, and read the values of others (Space)">Hold patch</button>
    <label>Map <select id="opacity"><option value="0.35">faint</option><option value="0.65" selected>half</option>
      <option value="1">alone</option></select></label>
    <label>Colours <select id="colours"></select></label>
  </div>
  <div class="panels" id="panels"></div>
  <details><summary>Keys and touch</summary><div class="keys">
    <span><kbd>&larr;</kbd> <kbd>&uarr;</kbd> <kbd>&darr;</kbd> <kbd>&rarr;</kbd></span><span>move the patch</span>
    <span><kbd>[</kbd> <kbd>]</kbd></span><span>layer down, up</span>
    <span><kbd>;</kbd> <kbd>'</kbd></span><span>head before, after: fused ones first</span>
    <span><kbd>,</kbd> <kbd>.</kbd></span><span>image before, after</span>
    <span><kbd>m</kbd></span><span>next method</span>
    <span><kbd>n</kbd></span><span>next network</span>
    <span><kbd>c</kbd></span><span>start from what the classifier reads, or from the patch</span>
    <span><kbd>Space</kbd></span><span>hold the patch; pointing then reads the values of others</span>
    <span><kbd>Tab</kbd></span><span>the other panel, and everything else</span>
    <span>tap</span><span>on a patch starts from it; on a small map shows that layer and head</span>
  </div></details>
</div>
<noscript><p>This page needs JavaScript; it loads nothing and sends nothing.</p></noscript>
"""
