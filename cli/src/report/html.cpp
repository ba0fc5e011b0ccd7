#include "report/html.hpp"

#include <attune/core/error.hpp>

#include "output/text.hpp"

namespace attune::cli {
namespace {

constexpr std::string_view kStyle = R"css(
:root{--page:#fbfbfa;--ink:#1d1f23;--muted:#5d636d;--grid:#e1e3e6;--shade:#f1f2f3;--accent:#2563b8;
--second:#c2571a;--third:#2c8a57;--fourth:#8b4fb3;--warn:#9a4a00;--heat:37 99 184}
@media(prefers-color-scheme:dark){:root{--page:#16181c;--ink:#e6e8eb;--muted:#9aa1ac;--grid:#30343b;
--shade:#1f2228;--accent:#6ea3ee;--second:#ec9457;--third:#63c18f;--fourth:#c39be3;--warn:#f0a860;
--heat:110 163 238}}
*{box-sizing:border-box}
html{scroll-padding-top:1rem;-webkit-text-size-adjust:100%}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1080px;
margin:2.5rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;margin:0}
h2{font-size:1.25rem;margin:3rem 0 0;border-top:1px solid var(--grid);padding-top:1rem}
h3{font-size:1.05rem;margin:2rem 0 .5rem}
h4{font-size:.9rem;margin:1rem 0 .25rem}
a{color:var(--accent);text-decoration:none}
a:hover,a:focus-visible{text-decoration:underline}
p{margin:.25rem 0}
.note{color:var(--muted);font-size:.85rem}
.mark{border:1px solid;border-radius:3px;font-size:.7rem;line-height:1;padding:.1rem .3rem;
margin-left:.4rem;white-space:nowrap;color:var(--muted)}
.mark.bad{color:var(--warn)}
.mark.here{color:var(--third)}
table{border-collapse:collapse;font-size:.8rem;line-height:1.4}
td,th{padding:.3rem 1rem .3rem 0;text-align:left;border-bottom:1px solid var(--grid);
vertical-align:top}
th{color:var(--muted);font-weight:500;white-space:nowrap}
th button{all:unset;cursor:pointer}
th button:focus-visible{outline:2px solid var(--accent)}
th[aria-sort=ascending] button::after{content:" \2191"}
th[aria-sort=descending] button::after{content:" \2193"}
td .note{font-size:inherit;display:block}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.short{white-space:nowrap}
.records{width:100%}
tr:target,section:target{background:var(--shade);outline:6px solid var(--shade)}
.bars{font-size:.8rem;line-height:1.3}
.bar{display:grid;grid-template-columns:minmax(0,27rem) minmax(0,1fr) 3.5rem;gap:.6rem;
align-items:center;color:inherit;padding:.2rem 0}
.bar .name{text-align:right;color:var(--muted)}
.bar .track{border-left:1px solid var(--muted)}
.bar .fill{display:block;height:.75rem;min-width:2px;border-radius:0 2px 2px 0;
background:var(--accent)}
.bar.doubtful .fill{opacity:.45}
.bar .value,.heat td{font-variant-numeric:tabular-nums}
.legend{font-size:.8rem;color:var(--muted);margin:0 0 .5rem}
.legend span{margin-right:1.2rem;white-space:nowrap}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:50%;margin-right:.4rem}
svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--muted)}
.grid{stroke:var(--grid)}
.ceiling{stroke:var(--muted);stroke-width:1.5;stroke-dasharray:6 4}
.dot{stroke:var(--page);stroke-width:1.5}
.colour0{fill:var(--accent);background:var(--accent)}
.colour1{fill:var(--second);background:var(--second)}
.colour2{fill:var(--third);background:var(--third)}
.colour3{fill:var(--fourth);background:var(--fourth)}
.problem{padding:.25rem 0 1rem;break-inside:avoid}
.beside{display:flex;flex-wrap:wrap;gap:.5rem 3rem;align-items:flex-start}
.heat td,.heat th{text-align:center;border:2px solid var(--page);padding:.3rem .6rem}
.heat th{font-variant-numeric:tabular-nums}
pre{background:var(--shade);font:.75rem/1.5 ui-monospace,monospace;margin:.4rem 0;
padding:.4rem .5rem .4rem 2rem;text-indent:-1.5rem;white-space:pre-wrap}
.wide{overflow-x:auto}
@media(max-width:600px){
body{margin:1rem auto}
h2{margin-top:2rem}
svg text{font-size:25px}
.dot{r:9px;stroke-width:3px}
.bar{grid-template-columns:minmax(0,1fr) 3.2rem;gap:0 .6rem;padding:.3rem 0}
.bar .name{text-align:left;grid-column:1/3}
.heat td,.heat th{padding:.3rem .25rem}
.records,.records tbody,.records tr,.records td{display:block}
.records thead{display:none}
.records tr{border-bottom:1px solid var(--grid);padding:.5rem 0}
.records td{border:0;padding:.1rem 0 .1rem 7rem;min-height:1.4em;position:relative;text-align:left;
white-space:normal}
.records td::before{content:attr(data-of);position:absolute;left:0;width:6.5rem;
color:var(--muted)}
.scripted thead,.scripted thead tr{display:block}
.scripted th{display:inline-block;border:0;padding:.2rem .8rem .2rem 0}
.scripted th button{text-decoration:underline}
}
@media print{
:root{--page:#fff;--ink:#000;--muted:#444;--grid:#ccc;--shade:#f4f4f4;--accent:#2563b8;
--second:#c2571a;--third:#2c8a57;--fourth:#8b4fb3;--warn:#9a4a00;--heat:37 99 184}
body{font-size:11px;margin:0;max-width:none;padding:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2,h3,h4{break-after:avoid}
td[data-of=problem],td[data-of=kernel]{overflow-wrap:break-word}
@page{margin:15mm}
tr,.bar,.chart{break-inside:avoid}
a{color:inherit}
.back{display:none}
}
)css";

// No "<" and no "&": the page stays well-formed XML.
constexpr std::string_view kScript = R"js(
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.key;
      const order = (a, b) => {
        const difference = Number(key(a)) - Number(key(b));
        return isNaN(difference) ? key(a).localeCompare(key(b)) : difference;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    };
  });
  table.classList.add("scripted");
}
)js";

void append_escaped(std::string& out, char c) {
  if (c == '&') {
    out += "&amp;";
  } else if (c == '<') {
    out += "&lt;";
  } else if (c == '>') {
    out += "&gt;";
  } else if (c == '"') {
    out += "&quot;";
  } else {
    out += c;
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  constexpr std::size_t kLongest = 400;
  std::string out;
  for (const char c : shorten(printable(text), kLongest)) append_escaped(out, c);
  return out;
}

std::string breakable(std::string_view text) {
  std::string html;
  for (const char c : escaped(text)) {
    html += c;
    if (c == ',') html += "<wbr/>";
  }
  return html;
}

std::string note(const std::string& html) { return "<p class=\"note\">" + html + "</p>\n"; }

std::string link(const std::string& anchor, const std::string& html) {
  return str("<a href=\"#", anchor, "\">", html, "</a>");
}

std::string two_lines(const std::string& first, const std::string& second) {
  return str(first, "<span class=\"note\">", second, "</span>");
}

std::string_view page_style() { return kStyle; }
std::string_view page_script() { return kScript; }

}  // namespace attune::cli
