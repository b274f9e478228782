//! The grammar of rows.

use super::caller::{self, Call, Ending};
use super::keys::{Answer, Demand, Offer};
use iscsi_wire::{LineError, PduLine, keys, parse_number};
use std::fmt;

/// Most bytes of a file.
const MAX_FILE: usize = 1 << 20;

/// The side that rows test. Ours is the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tested {
    Target,
    Initiator,
}

impl Tested {
    /// The words of lines that are sent, and of those that are awaited.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Tested::Target => ("I>", "T<"),
            Tested::Initiator => ("T>", "I<"),
        }
    }
}

/// A row: its id, and one play for each of its cases.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// For instance `NUM-03`.
    pub(crate) id: String,
    /// A one-line description.
    pub(crate) title: String,
    /// The file that it was read from.
    pub(super) file: String,
    pub(super) plays: Vec<Play>,
}

/// The steps of one case.
#[derive(Clone, Debug)]
pub(super) struct Play {
    /// What is special about it; empty if there is one case only.
    pub(super) case: String,
    pub(super) steps: Vec<Step>,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) line: usize,
    /// The connection of the session that it is for: 0 is the first.
    pub(super) on: u8,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A session with these values begins; if they are not granted the row does not apply, or, if `optional`, the steps up to the
    /// next session. Its first CmdSN is this one.
    Session { values: Vec<Wanted>, optional: bool, first_cmd_sn: Option<u32> },
    /// Another connection of the session logs in.
    Join,
    /// The next CmdSN is left out; the name stands for it.
    Gap(String),
    /// A login begins, and is in its operational stage: `I> keys` lines are its requests.
    Login { discovery: bool },
    /// Our side sends these keys.
    Offer(Offer),
    /// The target answers the login so.
    Answer(Answer),
    /// The target proposes these keys in the login.
    Propose(Vec<(String, String)>),
    /// What the initiator under test says in its login.
    Said(Demand),
    /// It does not accept what the target says: its login fails.
    Refuses,
    /// The program that uses the initiator under test asks for this.
    Call(Call),
    /// How a call may end.
    Returned { name: String, ends: Vec<Ending> },
    /// Our side sends this.
    Send(PduLine),
    /// The peer under test sends one of these.
    Await(Await),
    /// The connection breaks.
    Break,
}

/// A value that a session needs.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) key: String,
    pub(super) value: String,
    /// Whatever the peer makes of the offer will do.
    pub(super) at_most: bool,
}

/// What is awaited.
#[derive(Clone, Debug)]
pub(super) struct Await {
    /// Before it comes whatever follows from the rules.
    pub(super) after_all: bool,
    /// Another PDU of this name is legal, but the row does not apply then.
    pub(super) needed: bool,
    pub(super) alternatives: Vec<Alternative>,
    /// From this alternative on they end the steps of the session.
    pub(super) ends_from: usize,
}

/// What may be awaited.
#[derive(Clone, Debug)]
pub(super) enum Alternative {
    Pdu(PduLine),
    /// Keys of a login.
    Keys(Demand),
    /// The login is refused, with one of these statuses; with any if there are none.
    Refused(Vec<u16>),
    /// The peer closes the connection.
    Close,
    /// Nothing is sent, or nothing with this tag.
    Nothing(Option<String>),
}

impl Alternative {
    /// If it is that nothing comes: the name of the tag that nothing has, if one is named.
    pub(super) fn nothing_for(&self) -> Option<Option<&str>> {
        match self {
            Alternative::Nothing(of) => Some(of.as_deref()),
            _ => None,
        }
    }
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alternative::Pdu(line) => line.fmt(f),
            Alternative::Keys(demand) => demand.fmt(f),
            Alternative::Refused(statuses) => {
                f.write_str("refused")?;
                for (mark, status) in std::iter::once('=').chain(std::iter::repeat('|')).zip(statuses) {
                    write!(f, "{mark}{status:#06x}")?;
                }
                Ok(())
            }
            Alternative::Close => f.write_str("close"),
            Alternative::Nothing(None) => f.write_str("nothing"),
            Alternative::Nothing(Some(name)) => write!(f, "nothing itt={name}"),
        }
    }
}

/// A mistake in a file of rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct ParseError {
    file: String,
    line: usize,
    why: String,
}

impl Row {
    /// The rows of files that are part of the crate: their names and contents.
    #[allow(clippy::expect_used, reason = "a test reads the files, which are part of the crate")]
    pub(crate) fn of_crate(tested: Tested, files: &[(&str, &str)]) -> Vec<Row> {
        let read =
            |(file, text): &(&str, &str)| Row::parse(tested, file, text).expect("a file without mistakes");
        files.iter().flat_map(read).collect()
    }

    /// Reads the rows of a file. `file` is its name, for messages.
    pub(crate) fn parse(tested: Tested, file: &str, text: &str) -> Result<Vec<Row>, ParseError> {
        let mut rows: Vec<Draft> = Vec::new();
        let at = |line: usize, why: String| ParseError { file: file.to_owned(), line, why };
        if text.len() > MAX_FILE {
            return Err(at(
                1,
                format!("the file has {} bytes: write at most {MAX_FILE} into one", text.len()),
            ));
        }
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split_once("# ").map_or(line, |(line, _)| line).trim();
            if line.is_empty() || line == "#" {
                continue;
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            if word == "row" {
                rows.push(Draft::new(number, rest).map_err(|why| at(number, why))?);
                continue;
            }
            let Some(row) = rows.last_mut() else {
                return Err(at(number, "a step before the first row: begin with `row ID TITLE`".to_owned()));
            };
            match word {
                "case" => row.case(number, rest),
                _ => {
                    row.lines.push((number, line.to_owned()));
                    Ok(())
                }
            }
            .map_err(|why| at(number, why))?;
        }
        rows.into_iter()
            .map(|draft| draft.finish(tested, file).map_err(|(line, why)| at(line, why)))
            .collect()
    }
}

/// A row of which the lines are not read yet.
struct Draft {
    line: usize,
    id: String,
    title: String,
    /// Line, name, and what `{case}` stands for.
    cases: Vec<(usize, String, String)>,
    lines: Vec<(usize, String)>,
}

impl Draft {
    fn new(line: usize, rest: &str) -> Result<Self, String> {
        let (id, title) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let well_formed = id.split_once('-').is_some_and(|(section, number)| {
            let all = |text: &str| {
                !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
            };
            all(section) && all(number)
        });
        if !well_formed || title.trim().is_empty() {
            return Err("a row has an id and a title: `row DAT-01 what its rule demands`".to_owned());
        }
        let (id, title) = (id.to_owned(), title.trim().to_owned());
        Ok(Draft { line, id, title, cases: Vec::new(), lines: Vec::new() })
    }

    fn case(&mut self, line: usize, rest: &str) -> Result<(), String> {
        let (name, words) = rest.split_once(':').filter(|(name, _)| !name.trim().is_empty()).ok_or(
            "a case has a name and words: `case a gap: offset=512`; `{case}` in a step stands for the words",
        )?;
        if !self.lines.is_empty() {
            return Err("a case stands before the first step of its row".to_owned());
        }
        self.cases.push((line, name.trim().to_owned(), words.trim().to_owned()));
        Ok(())
    }

    fn finish(mut self, tested: Tested, file: &str) -> Result<Row, (usize, String)> {
        let uses = self.lines.iter().any(|(_, line)| line.contains("{case}") || line.contains("{1}"));
        match self.cases.first() {
            Some((line, ..)) if !uses => {
                return Err((
                    *line,
                    "no step of the row has `{case}` or `{1}`, so all cases are the same".to_owned(),
                ));
            }
            None => self.cases.push((self.line, String::new(), String::new())),
            Some(_) => {}
        }
        let mut plays = Vec::new();
        for (_, case, words) in &self.cases {
            plays.push(Play { case: case.clone(), steps: steps(tested, &self.lines, words)? });
        }
        if plays.iter().any(|play| play.steps.is_empty()) {
            return Err((
                self.line,
                "a row has steps: begin with `with` and the keys of its session".to_owned(),
            ));
        }
        Ok(Row { id: self.id, title: self.title, file: file.to_owned(), plays })
    }
}

fn steps(tested: Tested, lines: &[(usize, String)], case: &str) -> Result<Vec<Step>, (usize, String)> {
    let mut steps: Vec<Step> = Vec::new();
    let mut after_all = None;
    let (_, awaits) = tested.words();
    for (line, text) in lines {
        let mut text = text.replace("{case}", case);
        for (number, part) in (1..).zip(case.split('|')) {
            text = text.replace(&format!("{{{number}}}"), part.trim());
        }
        let (on, text) = numbered(tested, &text).map_err(|why| (*line, why))?;
        if let (Some(_), false) = (after_all, text.starts_with(awaits)) {
            return Err((
                *line,
                format!("`...` stands before the line that ends it, which begins with `{awaits}`"),
            ));
        }
        if text == "..." {
            after_all = Some(*line);
            continue;
        }
        let what = step(tested, &text, after_all.take().is_some()).map_err(|why| (*line, why))?;
        if steps.is_empty() && !what.begins() {
            let login = if tested == Tested::Target { ", or a `login`" } else { "" };
            return Err((
                *line,
                format!("the first step of a row is its session: `with`, and keys if it needs any{login}"),
            ));
        }
        check_place(tested, &steps, on, &what).map_err(|why| (*line, why))?;
        steps.push(Step { line: *line, on, what });
    }
    match after_all {
        Some(line) => {
            Err((line, format!("`...` at the end of a row: say with a `{awaits}` line how it ends")))
        }
        None => Ok(steps),
    }
}

/// Most connections of a session.
const MAX_CONNECTIONS: u8 = 8;

/// Takes the number of its connection out of a step: `I2> NopOut` is `I> NopOut` on the second one. `join 2` is a `join` there.
fn numbered(tested: Tested, text: &str) -> Result<(u8, String), String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (number, plain) = match (word, word.as_bytes()) {
        ("join", _) => (rest.trim(), "join".to_owned()),
        (_, [b'I' | b'T' | b'X', b'0'..=b'9', ..]) => {
            let (who, rest_of_word) = word.split_at(1);
            let digits = rest_of_word.trim_end_matches(['>', '<', '?']);
            (digits, format!("{who}{} {rest}", &rest_of_word[digits.len()..]))
        }
        _ => return Ok((0, text.to_owned())),
    };
    if tested == Tested::Initiator {
        return Err(format!("`{word}`: a row for initiators follows one connection"));
    }
    match number.parse::<u8>() {
        Ok(number @ 2..=MAX_CONNECTIONS) => Ok((number - 1, plain.trim_end().to_owned())),
        _ => Err(format!(
            "`{number}` is no further connection: the first one has no number, others have 2 to {MAX_CONNECTIONS}"
        )),
    }
}

impl What {
    /// Does a session or a login begin with it?
    pub(super) fn begins(&self) -> bool {
        matches!(self, What::Session { .. } | What::Login { .. })
    }

    /// Can it be part of a login?
    fn is_of_login(&self) -> bool {
        match self {
            What::Offer(_) => true,
            What::Await(wanted) => {
                let pdu = |one: &Alternative| matches!(one, Alternative::Pdu(_));
                !wanted.needed && !wanted.after_all && !wanted.alternatives.iter().any(pdu)
            }
            _ => false,
        }
    }

    /// Can it be part of a session?
    fn is_of_session(&self) -> bool {
        match self {
            What::Offer(_) => false,
            What::Await(wanted) => {
                let of_login =
                    |one: &Alternative| matches!(one, Alternative::Keys(_) | Alternative::Refused(_));
                !wanted.alternatives.iter().any(of_login)
            }
            _ => true,
        }
    }
}

/// Can the step stand after these?
fn check_place(tested: Tested, before: &[Step], on: u8, what: &What) -> Result<(), String> {
    let part = || before.iter().rev().take_while(|step| !step.what.begins());
    let joins = |step: &Step| step.on == on && matches!(step.what, What::Join);
    if on > 0 && !matches!(what, What::Join) && !part().any(joins) {
        let number = on + 1;
        return Err(format!("the session has no connection {number}: write `join {number}` before"));
    }
    if !what.begins() {
        match before.iter().rev().find(|step| step.what.begins()) {
            Some(Step { what: What::Login { .. }, .. }) => {
                return check_login(part().map(|step| &step.what), what);
            }
            _ if !what.is_of_session() => {
                return Err("keys and refusals belong to a login: write `login` before".to_owned());
            }
            _ => {}
        }
    }
    let calls: Vec<&str> = part()
        .filter_map(|step| match &step.what {
            What::Call(call) => Some(call.name.as_str()),
            _ => None,
        })
        .collect();
    let unknown = |name: &str| {
        format!("no call of the session has the name `{name}`: write `C> {name} read=512` before")
    };
    let awaited = part().any(|step| matches!(step.what, What::Await(_)));
    let is_of_script = |what: &What| matches!(what, What::Send(_) | What::Await(_) | What::Break);
    let refuses = |what: &What| matches!(what, What::Refuses);
    match what {
        _ if is_of_script(what) && part().any(|step| refuses(&step.what))
            || refuses(what) && part().any(|step| is_of_script(&step.what)) =>
        {
            Err("a login that is refused has no PDUs after it".to_owned())
        }
        What::Said(demand) => {
            let proposed = |key: &str| {
                part().any(|step| matches!(&step.what, What::Propose(pairs) if pairs.iter().any(|(name, _)| name == key)))
            };
            match demand.keys().find(|key| !keys::ALL.contains(key) && !proposed(key)) {
                Some(key) => Err(format!("`{key}` is no key of RFC 7143 13, and no line before proposes it")),
                None => Ok(()),
            }
        }
        // A script acts when something comes.
        What::Send(_) | What::Break if tested == Tested::Initiator && !awaited => {
            Err("a target speaks after it has received: write an `I<` line before".to_owned())
        }
        What::Call(call) if calls.contains(&call.name.as_str()) => {
            Err(format!("`{}` is the name of another call of the session", call.name))
        }
        // A command is known by what it does.
        What::Call(call)
            if part().any(|step| matches!(&step.what, What::Call(other) if other.is_like(call))) =>
        {
            Err(format!("another call is like `{}`: let it be about other bytes (`at=`)", call.name))
        }
        What::Returned { name, .. } if !calls.contains(&name.as_str()) => Err(unknown(name)),
        // The tag of a command stands for the call that it carries out.
        What::Await(wanted) if tested == Tested::Initiator => {
            let named = wanted.alternatives.iter().filter_map(|one| match one {
                Alternative::Pdu(line) if line.name() == "ScsiCommand" => line.text("itt"),
                _ => None,
            });
            named.filter(|name| !calls.contains(name)).try_for_each(|name| Err(unknown(name)))
        }
        _ => Ok(()),
    }
}

/// Can the step stand after these of its login, the last of which comes first?
fn check_login<'a>(mut before: impl Iterator<Item = &'a What>, what: &What) -> Result<(), String> {
    if !what.is_of_login() {
        return Err(
            "a login has `I> keys` and `T< keys` lines only, and `refused`, `close` or `nothing`".to_owned()
        );
    }
    let What::Await(wanted) = what else { return Ok(()) };
    let demanded = wanted.alternatives.iter().filter_map(|one| match one {
        Alternative::Keys(demand) => Some(demand),
        _ => None,
    });
    let offered = match before.next() {
        Some(What::Offer(offer)) => &offer.pairs,
        _ => return Err("a target answers what was sent: write an `I> keys` line before".to_owned()),
    };
    // Any other is a slip of the pen, of which `!KEY` would always hold.
    let known = |key: &&str| keys::ALL.contains(key) || offered.iter().any(|(name, _)| name == key);
    match demanded.flat_map(Demand::keys).find(|key| !known(key)) {
        Some(key) => Err(format!("`{key}` is no key of RFC 7143 13, and the line before does not offer it")),
        None => Ok(()),
    }
}

fn step(tested: Tested, text: &str, after_all: bool) -> Result<What, String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let (sends, awaits) = tested.words();
    match word {
        "with" | "when" => {
            let first = |word: &&str| tested == Tested::Target && word.starts_with("cmd_sn=");
            let (numbers, keys): (Vec<_>, Vec<_>) = rest.split_whitespace().partition(first);
            let first_cmd_sn = numbers.first().map(|word| first_number(word)).transpose()?;
            let values = keys.into_iter().map(wanted).collect::<Result<_, _>>()?;
            Ok(What::Session { values, optional: word == "when", first_cmd_sn })
        }
        "login" if tested == Tested::Target => match rest {
            "" | "discovery" => Ok(What::Login { discovery: rest == "discovery" }),
            _ => Err(format!("`login {rest}`: write `login` or `login discovery`")),
        },
        "C>" if tested == Tested::Initiator => Call::parse(rest).map(What::Call),
        "C<" if tested == Tested::Initiator => {
            caller::returned(rest).map(|(name, ends)| What::Returned { name, ends })
        }
        "T?" if tested == Tested::Target => awaited(tested, rest, after_all, true).map(What::Await),
        "X" if rest.is_empty() => Ok(What::Break),
        "join" if tested == Tested::Target => Ok(What::Join),
        "gap" if tested == Tested::Target => match rest.starts_with(|c: char| c.is_ascii_lowercase()) {
            true => Ok(What::Gap(rest.to_owned())),
            false => {
                Err("a gap has a name, for its CmdSN: write `gap n`, and `cmd_sn=n` in a later line"
                    .to_owned())
            }
        },
        "I>" if tested == Tested::Target && first_word(rest) == "keys" => {
            Offer::parse(&rest["keys".len()..]).map(What::Offer)
        }
        "T>" if tested == Tested::Initiator && first_word(rest) == "keys" => {
            Answer::parse(&rest["keys".len()..]).map(What::Answer)
        }
        "T>" if tested == Tested::Initiator && first_word(rest) == "proposes" => {
            match Offer::parse(&rest["proposes".len()..])? {
                Offer { transit: false, pairs } if !pairs.is_empty() => Ok(What::Propose(pairs)),
                _ => {
                    Err("a target proposes keys with values: write `T> proposes MaxBurstLength=4096`"
                        .to_owned())
                }
            }
        }
        "I<" if tested == Tested::Initiator && first_word(rest) == "keys" => {
            Demand::parse(rest["keys".len()..].trim()).map(What::Said)
        }
        "I<" if tested == Tested::Initiator && rest == "refused" => Ok(What::Refuses),
        _ if word == sends => PduLine::parse(rest).map(What::Send).map_err(|error| error.to_string()),
        _ if word == awaits => awaited(tested, rest, after_all, false).map(What::Await),
        _ => {
            let (login, others) = match tested {
                Tested::Target => ("`login`, `join`, `gap`, ", "`T?`"),
                Tested::Initiator => ("", "`C>`, `C<`"),
            };
            Err(format!(
                "`{word}` begins no step: write `with`, `when`, {login}`{sends}`, `{awaits}`, {others}, `...` or `X` (a row begins with `row`, a note with `# `)"
            ))
        }
    }
}

/// The N of `cmd_sn=N`.
fn first_number(word: &str) -> Result<u32, String> {
    let number = word.split_once('=').and_then(|(_, number)| parse_number(number).ok()?.try_into().ok());
    number.ok_or_else(|| format!("`{word}`: a CmdSN is a number of 32 bits: write `cmd_sn=0xfffffffd`"))
}

fn wanted(word: &str) -> Result<Wanted, String> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let (key, at_most) = key.strip_suffix('<').map_or((key, false), |key| (key, true));
    if value.is_empty() || !keys::ALL.contains(&key) {
        return Err(format!(
            "`{word}` is no key of RFC 7143 13 with a value: write for instance `MaxBurstLength=4096`, or `<=` if less will do"
        ));
    }
    Ok(Wanted { key: key.to_owned(), value: value.to_owned(), at_most })
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

fn awaited(tested: Tested, text: &str, after_all: bool, needed: bool) -> Result<Await, String> {
    let mut alternatives = Vec::new();
    let mut ends_from = None;
    for part in text.split(" else ") {
        if !alternatives.is_empty() && ends_from.is_none() {
            ends_from = Some(alternatives.len());
        }
        for one in part.split(" or ") {
            alternatives.push(alternative(tested, one.trim())?);
        }
    }
    let ends_from = ends_from.unwrap_or(alternatives.len());
    Ok(Await { after_all, needed, alternatives, ends_from })
}

fn alternative(tested: Tested, text: &str) -> Result<Alternative, String> {
    let of_target = tested == Tested::Target;
    match (first_word(text), text) {
        (_, "close") => Ok(Alternative::Close),
        (_, "nothing") => Ok(Alternative::Nothing(None)),
        ("nothing", _) if of_target => match text["nothing".len()..].trim().strip_prefix("itt=") {
            Some(name) => Ok(Alternative::Nothing(Some(name.to_owned()))),
            None => Err(format!("`{text}`: write `nothing`, or `nothing itt=a`")),
        },
        (_, "refused") if of_target => Ok(Alternative::Refused(Vec::new())),
        ("keys", _) if of_target => Demand::parse(text["keys".len()..].trim()).map(Alternative::Keys),
        _ => match text.strip_prefix("refused=") {
            Some(statuses) if of_target => {
                let number = |status: &str| {
                    let number = parse_number(status).ok().and_then(|status| u16::try_from(status).ok());
                    number.ok_or_else(|| format!("`{status}` is no login status: write `refused=0x0200`"))
                };
                statuses.split('|').map(number).collect::<Result<_, _>>().map(Alternative::Refused)
            }
            _ => pdu(text).map(Alternative::Pdu).map_err(|error| error.to_string()),
        },
    }
}

fn pdu(text: &str) -> Result<PduLine, LineError> {
    let line = PduLine::parse(text)?;
    line.check()?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(row [A-Z]{0,3}-?[0-9]{0,2} t\n)?((with|when|case|login|I> keys|T< keys|join|gap|I2>|T2<|X2|I>|T<|T\\?|C>|C<|I<|T>|X|\\.\\.\\.)[ -~]{0,40}\n){0,6}") {
            let _ = Row::parse(Tested::Target, "x.rows", &text);
            let _ = Row::parse(Tested::Initiator, "x.rows", &text);
        }
    }

    fn why(text: &str) -> String {
        Row::parse(Tested::Target, "x.rows", text).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_in_rows_for_initiators_are_told_too() {
        for (steps, words) in [
            ("I> NopOut", "`I>` begins no step: write `with`, `when`, `T>`, `I<`, `C>`, `C<`, `...` or `X`"),
            ("T? R2t", "`T?` begins no step"),
            ("...\nT> NopIn", "which begins with `I<`"),
            ("C> a", "a call has a name and what is asked for"),
            ("C> A read=512", "a call has a name and what is asked for"),
            ("C> a read=512 write=512", "a call has a name and what is asked for"),
            ("C> a read=100", "whole blocks of 512 bytes"),
            ("C> a write=512 at=4194304", "the disk has 4194304 bytes"),
            ("C> a read=512 lun=1", "`lun=1`"),
            ("C> a read=512\nC> a read=512", "the name of another call"),
            ("C> a read=512 at=512\nC> b read=512 at=512", "another call is like `b`"),
            ("C< a done", "no call of the session has the name `a`"),
            ("C> a flush\nT> NopIn", "a target speaks after it has received"),
            ("X", "a target speaks after it has received"),
            ("I< ScsiCommand itt=a", "no call of the session has the name `a`"),
            ("C> a read=512\nC< a went", "`went`"),
            ("I2< NopOut", "`I2<`: a row for initiators follows one connection"),
            ("gap n", "`gap` begins no step"),
            ("T> keys A", "`A` is no answer"),
            ("T> proposes", "a target proposes keys with values"),
            ("T> proposes T", "a target proposes keys with values"),
            ("I< keys MaxBurst=1", "`MaxBurst` is no key of RFC 7143 13"),
            ("I< keys MaxBurstLength<=x", "`x` is no number"),
            ("C> a read=512\nI< ScsiCommand itt=a\nI< refused", "a login that is refused has no PDUs"),
            ("C> a read=512\nI< refused\nI< ScsiCommand itt=a", "a login that is refused has no PDUs"),
            ("C> a read=512\nC<", "how it may end"),
        ] {
            let text = format!("row DAT-01 t\nwith\n{steps}\n");
            let why = Row::parse(Tested::Initiator, "x.rows", &text).unwrap_err().to_string();
            assert!(why.contains(words), "{steps:?}: {why}");
        }
    }

    #[test]
    fn a_row_has_a_play_for_each_case() {
        let text = "# a note\nrow DAT-03 what it is  # and why\ncase a gap: offset=1\ncase none: offset=0\n\
                    with MaxBurstLength=4096\nI> DataOut itt=a {case}\n...\nT< Reject or NopIn else close\nX\n";
        let rows = Row::parse(Tested::Target, "x.rows", text).unwrap();
        assert_eq!((rows.len(), rows[0].id.as_str(), rows[0].title.as_str()), (1, "DAT-03", "what it is"));
        let [gap, none] = &rows[0].plays[..] else { panic!("two cases") };
        assert_eq!((gap.case.as_str(), gap.steps.len()), ("a gap", 4));
        assert!(
            matches!(&gap.steps[1].what, What::Send(line) if line.to_string() == "DataOut itt=a offset=1")
        );
        assert!(
            matches!(&none.steps[1].what, What::Send(line) if line.to_string() == "DataOut itt=a offset=0")
        );
        assert!(
            matches!(&gap.steps[2].what, What::Await(one) if one.after_all && one.alternatives.len() == 3 && one.ends_from == 2)
        );
        assert_eq!(gap.steps[2].line, 8);
    }

    #[test]
    fn mistakes_are_told_with_place_and_remedy() {
        for (text, words) in [
            ("with\n", "x.rows:1: a step before the first row: begin with `row"),
            ("row DAT01 title\n", "x.rows:1: a row has an id and a title"),
            ("row DAT-01\n", "x.rows:1: a row has an id and a title"),
            ("\nrow DAT-01 t\n", "x.rows:2: a row has steps"),
            ("row DAT-01 t\nI> NopOut\n", "x.rows:2: the first step of a row is its session"),
            ("row DAT-01 t\nwith MaxBurst=1\n", "x.rows:2: `MaxBurst=1` is no key"),
            ("row DAT-01 t\nwith\nT> NopIn\n", "x.rows:3: `T>` begins no step: write"),
            ("row KEY-01 t\nlogin fast\n", "x.rows:2: `login fast`"),
            ("row KEY-01 t\nI> keys T\n", "x.rows:2: the first step of a row is its session"),
            ("row KEY-01 t\nwith\nI> keys T\n", "x.rows:3: keys and refusals belong to a login"),
            ("row KEY-01 t\nwith\nT< refused\n", "x.rows:3: keys and refusals belong to a login"),
            ("row KEY-01 t\nlogin\nI> NopOut\n", "x.rows:3: a login has `I> keys`"),
            ("row KEY-01 t\nlogin\nI> keys T\nT< NopIn\n", "x.rows:4: a login has `I> keys`"),
            ("row KEY-01 t\nlogin\nT< keys\n", "x.rows:3: a target answers what was sent"),
            ("row KEY-01 t\nlogin\nI> keys T MaxBurst\n", "x.rows:3: `MaxBurst` is no key with a value"),
            (
                "row KEY-01 t\nlogin\nI> keys T\nT< keys !MaxBurst\n",
                "x.rows:4: `MaxBurst` is no key of RFC 7143",
            ),
            ("row KEY-01 t\nlogin\nI> keys T\nT< refused=few\n", "x.rows:4: `few` is no login status"),
            ("row DAT-01 t\nwith\n...\n", "x.rows:3: `...` at the end of a row"),
            ("row DAT-01 t\nwith\n...\nI> NopOut\n", "x.rows:4: `...` stands before"),
            ("row MCS-01 t\nwith\nI2> NopOut\n", "x.rows:3: the session has no connection 2: write `join 2`"),
            ("row MCS-01 t\nwith\nI1> NopOut\n", "x.rows:3: `1` is no further connection"),
            ("row MCS-01 t\nwith\njoin\n", "x.rows:3: `` is no further connection"),
            ("row MCS-01 t\nwith\njoin 9\n", "x.rows:3: `9` is no further connection"),
            ("row MCS-01 t\nwith\njoin 2\nX3\n", "x.rows:4: the session has no connection 3"),
            ("row MCS-01 t\nlogin\njoin 2\n", "x.rows:3: a login has `I> keys`"),
            ("row NUM-01 t\nwith\ngap\n", "x.rows:3: a gap has a name"),
            ("row NUM-01 t\nwith cmd_sn=few\nI> NopOut\n", "x.rows:2: `cmd_sn=few`: a CmdSN is a number"),
            ("row NUM-01 t\nwith\nT< nothing ttt=1\n", "x.rows:3: `nothing ttt=1`: write `nothing`"),
            ("row DAT-01 t\nwith\nT< Nop\n", "x.rows:3: `Nop` is no PDU"),
            ("row DAT-01 t\nwith\nT< NopIn offest=1\n", "x.rows:3: NopIn has no field `offest`"),
            ("row DAT-01 t\ncase x\nwith\n", "x.rows:2: a case has a name"),
            ("row DAT-01 t\ncase x: y\nwith\n", "x.rows:2: no step of the row has `{case}` or"),
            ("row DAT-01 t\nwith\ncase x: y\n", "x.rows:3: a case stands before"),
        ] {
            let why = why(text);
            assert!(why.contains(words), "{text:?}: {why}");
        }
        assert!(why(&"#".repeat(MAX_FILE + 1)).contains("at most"));
    }
}
