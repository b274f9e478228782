//! `cargo xtask cite`: which rows of `conformance/*.md` are implemented in code and shown by a test.
//!
//! Code cites the rule that it implements on the line above, with the source, the section and the rows: `//=
//! rfc7143 4.2.2.1 NUM-03`. A test names its rows in its own name (`fn num_03_duplicate_is_ignored`) or in a
//! comment `// covers: NUM-03 NUM-04`. A row that is written as text begins with `row NUM-03`. `conformance/scope.toml` lists the rows that must have both.

mod citations;
mod report;
mod scope;
mod table;

use std::path::Path;

use anyhow::{Context, Result};

use crate::{rust_source, workspace};
use report::Report;
use scope::Scope;

#[derive(clap::Args, Default)]
pub struct Args {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Also list every row in scope with the places that keep and test it
    #[arg(long, short)]
    verbose: bool,
}

/// The folder of the tables and of the scope.
const FOLDER: &str = "conformance";

/// Makes and prints the report; `true` when every row in scope has code and a test, and no citation is
/// wrong.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let report = make(root)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.to_text(args.verbose));
    }
    Ok(report.is_clean())
}

fn make(root: &Path) -> Result<Report> {
    let folder = root.join(FOLDER);
    let rows = table::read_folder(&folder)?;
    let scope_path = folder.join("scope.toml");
    let scope_text =
        std::fs::read_to_string(&scope_path).with_context(|| scope_path.display().to_string())?;
    let scope: Scope = toml::from_str(&scope_text).with_context(|| scope_path.display().to_string())?;
    let files = workspace::files(root)?;
    let mut citations = citations::scan(&rust_source::read_all(root, &files)?, &rows);
    citations::add_texts(root, &files, &rows, &mut citations)?;
    Ok(Report::new(rows, &scope, citations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_and_the_scope_of_this_project_are_read() {
        let root = workspace::root().unwrap();
        let rows = table::read_folder(&root.join(FOLDER)).unwrap();
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        for id in ["PDU-01", "KEY-28", "KEY-29", "KEY-30", "R2T-05", "P2-07", "VPD-8F", "DIX-04", "REJ-04"] {
            assert!(ids.contains(&id), "{id}");
        }
        let scope: Scope =
            toml::from_str(&std::fs::read_to_string(root.join(FOLDER).join("scope.toml")).unwrap()).unwrap();
        assert_eq!(scope.problems(&rows), Vec::<String>::new());
    }
}
