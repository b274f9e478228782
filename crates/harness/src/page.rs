//! A [`Document`] as one HTML page that opens without a network: style and charts are in it, and there is no script.

use std::fmt::Write;

use crate::chart::{STYLE, escape};
use crate::document::{Block, Document, Table};

/// The style of everything but the charts.
const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--mute:#5b6675;--line:#e1e6ec;--bg:#fff;--soft:#f6f8fa;--good:#12805c;--bad:#b3243b}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--mute:#98a3b3;--line:#29303a;--bg:#12161c;--soft:#181d24;--good:#43cf9f;--bad:#ff7b8f}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2.5rem 1.25rem 5rem;max-width:66rem;background:var(--bg);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 1rem}
h2{font-size:1.35rem;margin:3.2rem 0 .6rem;padding-top:1.2rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:2rem 0 .4rem}
p{max-width:46rem;margin:.5rem 0}
nav{columns:3 14rem;font-size:.92rem;margin:1.5rem 0}
nav a{display:block;color:inherit;text-decoration-color:var(--line);padding:.1rem 0}
.verdict{display:inline-block;padding:.25rem .7rem;border-radius:1rem;border:1px solid currentColor;font-weight:600;font-size:.9rem}
.quiet{color:var(--good)}.noisy{color:var(--bad)}
.noisy+ul{color:var(--bad);margin:.5rem 0;padding-left:1.2rem}
figure{margin:1.2rem 0;overflow-x:auto}
figure svg{max-width:100%;height:auto;display:block}
.wide{overflow-x:auto;margin:.8rem 0 1.4rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;min-width:24rem}
caption{text-align:left;color:var(--mute);padding:.2rem 0 .5rem;font-size:.9rem}
th,td{padding:.28rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{color:var(--mute);font-weight:600}
th:first-child,td:first-child{text-align:left;padding-left:.2rem}
tbody tr:hover{background:var(--soft)}
footer{margin-top:4rem;color:var(--mute);font-size:.85rem}
@media print{body{max-width:none;padding:0}h2{break-before:page}}
";

/// The page.
pub fn html(document: &Document) -> String {
    let title = escape(&document.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{PAGE_STYLE}{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    let (verdict, good) = document.trust.verdict();
    let class = if good { "quiet" } else { "noisy" };
    let _ = writeln!(page, "<p class=\"verdict {class}\">{verdict}</p>");
    if !good {
        page.push_str("<ul>\n");
        document.trust.reasons().iter().for_each(|reason| put(&mut page, "li", reason));
        page.push_str("</ul>\n");
    }
    contents(&mut page, document);
    let mut part = 0;
    for block in &document.blocks {
        match block {
            Block::Heading(1, heading) => {
                part += 1;
                let _ = writeln!(page, "<h2 id=\"part-{part}\">{}</h2>", escape(heading));
            }
            Block::Heading(_, heading) => put(&mut page, "h3", heading),
            Block::Text(text) => put(&mut page, "p", text),
            Block::Table(table) => put_table(&mut page, table),
            Block::Chart(chart) => {
                let _ = writeln!(page, "<figure>\n{}</figure>", chart.inline());
            }
        }
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn contents(page: &mut String, document: &Document) {
    let parts = document.blocks.iter().filter_map(|block| match block {
        Block::Heading(1, heading) => Some(heading),
        _ => None,
    });
    page.push_str("<nav>\n");
    for (n, heading) in parts.enumerate() {
        let _ = writeln!(page, "<a href=\"#part-{}\">{}</a>", n + 1, escape(heading));
    }
    page.push_str("</nav>\n");
}

fn put(page: &mut String, tag: &str, text: &str) {
    let _ = writeln!(page, "<{tag}>{}</{tag}>", escape(text));
}

fn put_table(page: &mut String, table: &Table) {
    page.push_str("<div class=\"wide\"><table>\n");
    if !table.caption.is_empty() {
        put(page, "caption", &table.caption);
    }
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = table.rows.iter().map(|cells| row("td", cells)).collect();
    let _ =
        writeln!(page, "<thead>{}</thead><tbody>\n{body}</tbody></table></div>", row("th", &table.heading));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Trust;

    #[test]
    fn a_page_escapes_what_it_shows_and_says_whether_to_trust_it() {
        let mut document = Document { title: "<T>".to_owned(), ..Document::default() };
        document.blocks.push(Block::Heading(1, "a & b".to_owned()));
        let mut table = Table::new("", &["x"]);
        table.rows.push(vec!["<script>".to_owned()]);
        document.blocks.push(Block::Table(table));
        assert!(html(&document).contains("computed, not measured"));
        document.trust = Trust::Measured(Vec::new());
        let page = html(&document);
        assert!(page.contains("the machine was quiet") && !page.contains("<script"), "{page}");
        assert!(page.contains("<a href=\"#part-1\">a &amp; b</a>") && page.contains("<h2 id=\"part-1\">"));
        document.trust = Trust::Measured(vec!["noise".to_owned()]);
        let page = html(&document);
        assert!(page.contains("not to be trusted") && page.contains("<li>noise</li>"));
        assert!(!page.contains("the machine was quiet"));
    }
}
