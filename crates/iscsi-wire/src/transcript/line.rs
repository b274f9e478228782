//! One PDU as a line that somebody writes: what a script sends, and what it awaits.
//!
//! ```text
//! ScsiCommand itt=a F W edtl=8192          a PDU and its fields, with the names that `one_line` prints
//! R2t itt=a ttt=x offset=0 len<=4096 !I    tests: `=`, `!=`, `<=`, `>=`; a flag; `!` for what must be absent
//! ```
//! A number may be a name. A name is bound by its first use, and stands for the same value from then on; `x+1` counts from it.

use crate::{CmdSn, Isid, Lun, Opcode, ResponseNumbers, StatSn, Tsih, parse_number};
use std::collections::BTreeMap;

/// Fields whose values may be names: tags, which the peers choose, and numbers that count.
const NAMED: &[&str] = &[
    "itt",
    "ttt",
    "referenced_task_tag",
    "of_itt",
    "snack_tag",
    "cmd_sn",
    "exp_cmd_sn",
    "max_cmd_sn",
    "ref_cmd_sn",
    "stat_sn",
    "exp_stat_sn",
    "data_sn",
    "exp_data_sn",
    "r2t_sn",
    "offset",
    "len",
    "data",
    "beg_run",
    "run_length",
];

/// Every field that a line of a transcript can have.
const PRINTED: &[&str] = &[
    "I",
    "F",
    "R",
    "W",
    "T",
    "C",
    "A",
    "lun",
    "edtl",
    "attr",
    "cdb",
    "function",
    "csg",
    "nsg",
    "isid",
    "tsih",
    "cid",
    "reason",
    "type",
    "status",
    "underflow",
    "overflow",
    "bidi_underflow",
    "bidi_overflow",
    "response",
    "additional",
    "time2wait",
    "time2retain",
    "event",
    "vcode",
    "parameter1",
    "parameters",
    "extended_cdb",
    "bidi_read_length",
    "sense",
    "of_opcode",
];

/// Fields that have no value: a line has them or not.
const FLAGS: &[&str] = &["I", "F", "R", "W", "T", "C", "A", "bad_digest"];

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// There is no PDU.
    #[error("a line names a PDU first, for instance `NopOut`")]
    Empty,
    /// A PDU that does not exist, or that this side does not send.
    #[error(
        "`{0}` is no PDU of this side: write a name of RFC 7143 11 in one word, for instance `ScsiCommand`"
    )]
    UnknownPdu(String),
    /// A word that is no field.
    #[error("`{0}` is no field: write `NAME`, `!NAME` or `NAME=VALUE` (tests: `!=`, `<=`, `>=`)")]
    Word(String),
    /// A field that the PDU does not have.
    #[error("{pdu} has no field `{field}`: the names are those that a transcript prints")]
    UnknownField {
        /// The PDU.
        pdu: String,
        /// The word.
        field: String,
    },
    /// A test in a line that is sent.
    #[error("`{0}` is a test: a PDU that is sent has `NAME` or `NAME=VALUE`")]
    Test(String),
    /// A flag with a value, or a field without one.
    #[error(
        "`{0}`: a flag stands alone, like `F`, and every other field that is sent has a value, like `lun=1`"
    )]
    Form(String),
    /// A value that is no number.
    #[error("`{field}={value}` is no number from 0 to {max}: write it in decimal or as 0x...{hint}")]
    Number {
        /// The field.
        field: String,
        /// What is written.
        value: String,
        /// The largest value.
        max: u64,
        /// What else could be meant.
        hint: &'static str,
    },
    /// A value that is not in the list of the standard.
    #[error("`{field}={value}` is not in the list of RFC 7143: write one of {known}")]
    Choice {
        /// The field.
        field: String,
        /// What is written.
        value: String,
        /// What may be written.
        known: String,
    },
    /// A field without which the PDU cannot be made.
    #[error("{pdu} needs `{field}=...`")]
    Missing {
        /// The PDU.
        pdu: String,
        /// The field.
        field: &'static str,
    },
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    /// A flag that is set, or a field that is there.
    Present,
    /// `!name`: a flag that is clear, or a field that is not there.
    Absent,
    /// `=`
    Is,
    /// `!=`; true also of a field that is not there.
    IsNot,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

/// One field of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    field: String,
    test: Test,
    value: String,
}

impl Word {
    fn parse(text: &str) -> Result<Self, LineError> {
        let wrong = || LineError::Word(text.to_owned());
        let word = |field: &str, test, value: &str| {
            let named = !field.is_empty() && field.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let whole = matches!(test, Test::Present | Test::Absent) || !value.is_empty();
            (named && whole).then(|| Word { field: field.to_owned(), test, value: value.to_owned() })
        };
        let read = match text.split_once('=') {
            Some((left, value)) => match left.as_bytes().last() {
                Some(b'!') => word(&left[..left.len() - 1], Test::IsNot, value),
                Some(b'<') => word(&left[..left.len() - 1], Test::AtMost, value),
                Some(b'>') => word(&left[..left.len() - 1], Test::AtLeast, value),
                _ => word(left, Test::Is, value),
            },
            None => match text.strip_prefix('!') {
                Some(field) => word(field, Test::Absent, ""),
                None => word(text, Test::Present, ""),
            },
        };
        read.ok_or_else(wrong)
    }

    /// Its name.
    pub(super) fn field(&self) -> &str {
        &self.field
    }

    /// Can it stand in a PDU that is sent?
    pub(super) fn check_sent(&self) -> Result<(), LineError> {
        let flag = FLAGS.contains(&self.field.as_str());
        match self.test {
            Test::Present if flag => Ok(()),
            Test::Is if !flag => Ok(()),
            Test::Absent => Ok(()),
            Test::Present | Test::Is => Err(LineError::Form(self.to_string())),
            Test::IsNot | Test::AtMost | Test::AtLeast => Err(LineError::Test(self.to_string())),
        }
    }

    /// Can a PDU that comes have it so?
    fn check_awaited(&self) -> Result<(), LineError> {
        match FLAGS.contains(&self.field.as_str()) && !matches!(self.test, Test::Present | Test::Absent) {
            true => Err(LineError::Form(self.to_string())),
            false => Ok(()),
        }
    }

    /// Does it hold for a PDU in which the field has this value? `None`: the PDU does not have it; a flag has an empty value.
    fn holds(&self, got: Option<&str>, names: &mut Names) -> bool {
        let Some(got) = got else { return matches!(self.test, Test::Absent | Test::IsNot) };
        if self.test == Test::Is
            && let (true, Some(value)) = (NAMED.contains(&self.field.as_str()), literal(got))
            && names.bind(&self.value, value)
        {
            return true;
        }
        let pair = names.value(&self.value).zip(literal(got));
        let same = pair.map_or(self.value == got, |(want, got)| want == got);
        match self.test {
            Test::Present => true,
            Test::Absent => false,
            Test::Is => same,
            Test::IsNot => !same,
            Test::AtMost => pair.is_some_and(|(want, got)| got <= want),
            Test::AtLeast => pair.is_some_and(|(want, got)| got >= want),
        }
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Word { field, test, value } = self;
        match test {
            Test::Present => f.write_str(field),
            Test::Absent => write!(f, "!{field}"),
            Test::Is => write!(f, "{field}={value}"),
            Test::IsNot => write!(f, "{field}!={value}"),
            Test::AtMost => write!(f, "{field}<={value}"),
            Test::AtLeast => write!(f, "{field}>={value}"),
        }
    }
}

/// A number as it is written: as in text keys, or `ffffffff` for the reserved tag.
fn literal(text: &str) -> Option<u32> {
    if text == "ffffffff" {
        return Some(u32::MAX);
    }
    parse_number(text).ok()?.try_into().ok()
}

/// A name begins with a lower-case letter.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && literal(text).is_none()
}

/// The values that names stand for.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<String, u32>);

impl Names {
    /// Binds `name` to `value`, if it is a name that is not bound yet.
    pub fn bind(&mut self, name: &str, value: u32) -> bool {
        let new = is_name(name) && !self.0.contains_key(name);
        if new {
            self.0.insert(name.to_owned(), value);
        }
        new
    }

    /// Binds `name` to `value`, whatever it stood for before, if it is a name.
    pub fn set(&mut self, name: &str, value: u32) {
        if is_name(name) {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// The value of a number or a bound name, or of two of them with `+` or `-` between.
    pub fn value(&self, text: &str) -> Option<u32> {
        let one = |text: &str| literal(text).or_else(|| self.0.get(text).copied());
        if let Some((start, more)) = text.split_once('+') {
            return Some(one(start)?.wrapping_add(one(more)?));
        }
        if let Some((start, less)) = text.split_once('-') {
            return Some(one(start)?.wrapping_sub(one(less)?));
        }
        one(text)
    }
}

/// Values of the fields that a line leaves out.
#[derive(Clone, Debug, Default)]
pub struct Usual {
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// LUN of commands, task management requests, and data that an R2T requested.
    pub lun: Lun,
    /// The CDB.
    pub cdb: [u8; 16],
    /// ISID.
    pub isid: Isid,
    /// TSIH.
    pub tsih: Tsih,
    /// CID.
    pub cid: crate::Cid,
    /// The numbers of what a target sends.
    pub numbers: ResponseNumbers,
}

/// One PDU as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PduLine {
    name: String,
    words: Vec<Word>,
}

impl PduLine {
    /// Reads `Name flag field=value ...`.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or(LineError::Empty)?.to_owned();
        Ok(PduLine { name, words: words.map(Word::parse).collect::<Result<_, _>>()? })
    }

    /// The PDU's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its fields, as written.
    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }

    fn word(&self, field: &str) -> Option<&Word> {
        self.words.iter().find(|word| word.field == field)
    }

    /// Is the flag set?
    pub fn flag(&self, field: &str) -> bool {
        self.word(field).is_some_and(|word| word.test == Test::Present)
    }

    /// The value of `field=...`, as written.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.word(field).filter(|word| word.test == Test::Is).map(|word| word.value.as_str())
    }

    /// The number in `field=...`, where a name stands for its value.
    pub fn number(&self, field: &str, names: &Names) -> Result<Option<u32>, LineError> {
        let Some(text) = self.text(field) else { return Ok(None) };
        names.value(text).map(Some).ok_or_else(|| LineError::Number {
            field: field.to_owned(),
            value: text.to_owned(),
            max: u32::MAX.into(),
            hint: if is_name(text) { "; a name must have been bound by an earlier line" } else { "" },
        })
    }

    /// Like [`PduLine::number`], for fields that are narrower.
    pub(super) fn small<T: TryFrom<u32>>(&self, field: &str, max: u32) -> Result<Option<T>, LineError> {
        let Some(number) = self.number(field, &Names::default())? else { return Ok(None) };
        T::try_from(number).ok().filter(|_| number <= max).map(Some).ok_or_else(|| LineError::Number {
            field: field.to_owned(),
            value: self.text(field).unwrap_or_default().to_owned(),
            max: max.into(),
            hint: "",
        })
    }

    /// Takes a word that is not for the PDU out of the line, and returns its value; a flag has an empty one.
    pub fn take(&mut self, field: &str) -> Option<String> {
        let at = self.words.iter().position(|word| word.field == field && word.test != Test::Absent)?;
        Some(self.words.remove(at).value)
    }

    /// Adds `field=value`, unless the line has the field.
    pub fn with(&mut self, field: &str, value: impl ToString) {
        if self.word(field).is_none() {
            self.words.push(Word { field: field.to_owned(), test: Test::Is, value: value.to_string() });
        }
    }

    /// Adds a flag, unless the line has it.
    pub fn with_flag(&mut self, field: &str) {
        if self.word(field).is_none() {
            self.words.push(Word { field: field.to_owned(), test: Test::Present, value: String::new() });
        }
    }

    /// Can a PDU be as described? An error if the name or a field is none that a transcript prints, or a flag has a value.
    pub fn check(&self) -> Result<(), LineError> {
        if !Opcode::ALL.iter().any(|opcode| opcode.name() == self.name) {
            return Err(LineError::UnknownPdu(self.name.clone()));
        }
        let unknown =
            self.words.iter().find(|word| !NAMED.contains(&word.field()) && !PRINTED.contains(&word.field()));
        match unknown {
            Some(word) => Err(LineError::UnknownField { pdu: self.name.clone(), field: word.field.clone() }),
            None => self.words.iter().try_for_each(Word::check_awaited),
        }
    }

    /// The first word that does not hold for a PDU, given [as one line](super::one_line): its name, or a field. Names that are not
    /// bound yet are bound if all hold.
    pub fn differs(&self, got: &str, names: &mut Names) -> Option<String> {
        let mut parts = got.split_whitespace();
        if parts.next() != Some(self.name.as_str()) {
            return Some(self.name.clone());
        }
        let got: Vec<(&str, &str)> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
        let mut bound = names.clone();
        for word in &self.words {
            let value = got.iter().find(|(field, _)| *field == word.field).map(|(_, value)| *value);
            if !word.holds(value, &mut bound) {
                return Some(word.to_string());
            }
        }
        *names = bound;
        None
    }
}

impl std::fmt::Display for PduLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.words.iter().try_for_each(|word| write!(f, " {word}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bhs, one_line};
    use proptest::prelude::*;

    fn line(text: &str) -> PduLine {
        PduLine::parse(text).unwrap()
    }

    fn differs(want: &str, got: &str, names: &mut Names) -> Option<String> {
        line(want).differs(got, names)
    }

    #[test]
    fn what_is_written_is_what_is_printed() {
        let usual = Usual {
            cmd_sn: CmdSn(5),
            exp_stat_sn: StatSn(6),
            numbers: ResponseNumbers { stat_sn: StatSn(8), exp_cmd_sn: CmdSn(5), max_cmd_sn: CmdSn(9) },
            ..Usual::default()
        };
        for text in [
            "NopOut itt=7 cmd_sn=5 exp_stat_sn=6",
            "ScsiCommand itt=7 cmd_sn=5 exp_stat_sn=6 lun=2 F W edtl=512 attr=Ordered cdb=00000000000000000000000000000000",
            "TaskManagementRequest I itt=7 cmd_sn=5 exp_stat_sn=6 function=AbortTask lun=0 referenced_task_tag=3 ref_cmd_sn=4",
            "TextRequest itt=7 F cmd_sn=5 exp_stat_sn=6",
            "DataOut itt=7 ttt=9 F data_sn=1 offset=512",
            "LogoutRequest I itt=7 reason=CloseSession cid=1 cmd_sn=5 exp_stat_sn=6",
            "SnackRequest itt=7 type=DataOrR2t beg_run=1 run_length=2 exp_stat_sn=6",
            "NopIn ttt=9 lun=4660 stat_sn=8 exp_cmd_sn=5 max_cmd_sn=9",
            "ScsiResponse itt=7 stat_sn=8 response=0x00 status=0x02 underflow=512 snack_tag=3 exp_data_sn=2 exp_cmd_sn=5 max_cmd_sn=9",
            "ScsiResponse itt=7 stat_sn=8 response=0x01 status=0x00 bidi_overflow=4 exp_data_sn=0 exp_cmd_sn=5 max_cmd_sn=9",
            "TaskManagementResponse itt=7 stat_sn=8 response=TaskDoesNotExist exp_cmd_sn=5 max_cmd_sn=9",
            "DataIn itt=7 F data_sn=1 offset=512 stat_sn=8 status=0x00 overflow=4 exp_cmd_sn=5 max_cmd_sn=9",
            "DataIn itt=7 ttt=9 A data_sn=1 offset=512 exp_cmd_sn=5 max_cmd_sn=9",
            "R2t itt=7 ttt=9 r2t_sn=1 offset=512 len=1024 stat_sn=8 exp_cmd_sn=5 max_cmd_sn=9",
            "LogoutResponse itt=7 stat_sn=8 response=CidNotFound time2wait=2 time2retain=20 exp_cmd_sn=5 max_cmd_sn=9",
            "Reject stat_sn=8 reason=ProtocolError data_sn=1 exp_cmd_sn=5 max_cmd_sn=9",
        ] {
            let (pdu, ahs) = line(text).pdu(&usual, &Names::default()).unwrap();
            assert_eq!(one_line(&pdu.to_bhs(), &ahs), text);
            assert_eq!(line(text).to_string(), text);
            assert_eq!(line(text).differs(text, &mut Names::default()), None);
            assert_eq!(line(text).check(), Ok(()));
        }
    }

    #[test]
    fn names_stand_for_what_they_met_first() {
        let mut names = Names::default();
        assert_eq!(
            differs("R2t itt=a ttt=x offset=0", "R2t itt=258 ttt=77 offset=512", &mut names),
            Some("offset=0".into())
        );
        assert_eq!(names.value("a"), None, "nothing is bound by a PDU that does not fit");
        assert_eq!(differs("R2t itt=a ttt=x offset=0", "R2t itt=258 ttt=77 offset=0", &mut names), None);
        assert_eq!(differs("R2t itt=a ttt!=x", "R2t itt=258 ttt=77", &mut names), Some("ttt!=x".into()));
        assert_eq!(differs("R2t itt=a r2t_sn=n", "R2t itt=258 r2t_sn=3", &mut names), None);
        assert_eq!(differs("R2t r2t_sn=n+1", "R2t r2t_sn=4", &mut names), None);
        assert_eq!(differs("R2t len=4096-n", "R2t len=4093", &mut names), None);
        assert_eq!(differs("R2t len=4096-m", "R2t len=4093", &mut names), Some("len=4096-m".into()));
        assert_eq!(differs("R2t itt=a", "R2t itt=259", &mut names), Some("itt=a".into()));
        assert_eq!(differs("R2t", "DataIn", &mut names), Some("R2t".into()));
    }

    #[test]
    fn tests_of_fields() {
        let got = "DataIn itt=1 F data_sn=2 status=0x02 data=512 sense=b/0c/0d";
        for (want, holds) in [
            ("F !A data<=512 data>=512 status=2 sense=b/0c/0d status", true),
            ("A", false),
            ("!F", false),
            ("data<=511", false),
            ("data>=513", false),
            ("status!=0x02", false),
            ("status!=0 stat_sn!=5", true),
            ("sense!=b/0c/0d", false),
            ("stat_sn=5", false),
        ] {
            let want = format!("DataIn {want}");
            assert_eq!(line(&want).differs(got, &mut Names::default()).is_none(), holds, "{want}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_a_remedy() {
        let build =
            |text: &str| line(text).pdu(&Usual::default(), &Names::default()).unwrap_err().to_string();
        assert!(PduLine::parse(" ").unwrap_err().to_string().contains("names a PDU first"));
        assert!(PduLine::parse("NopOut =7").unwrap_err().to_string().contains("NAME=VALUE"));
        assert!(PduLine::parse("NopOut itt=").unwrap_err().to_string().contains("`itt=`"));
        assert!(build("Nop itt=1").contains("`Nop` is no PDU"));
        assert!(line("Nop itt=1").check().unwrap_err().to_string().contains("`Nop` is no PDU"));
        assert!(line("NopIn !it").check().unwrap_err().to_string().contains("no field `it`"));
        assert!(build("NopOut itt=1 offset=2").contains("no field `offset`"));
        assert!(build("DataOut offset<=2").contains("is a test"));
        assert!(build("NopOut itt=a").contains("bound by an earlier line"));
        assert!(build("NopOut itt=+5").contains("no number"));
        assert!(build("DataOut F=1").contains("`F=1`: a flag stands alone"));
        assert!(build("DataOut itt").contains("has a value"));
        assert!(line("DataIn F!=0").check().unwrap_err().to_string().contains("a flag stands alone"));
        assert!(build("LoginRequest csg=9").contains("csg=9"));
        assert!(build("ScsiCommand itt=1 cdb=0").contains("cdb=0"));
        assert!(build("TaskManagementRequest itt=1").contains("needs `function=...`"));
        assert!(build("TaskManagementRequest itt=1 function=Abort").contains("AbortTaskSet"));
    }

    proptest! {
        #[test]
        fn no_line_panics(text in "\\PC{0,80}", got in "\\PC{0,80}") {
            if let Ok(line) = PduLine::parse(&text) {
                let _ = line.differs(&got, &mut Names::default());
                let _ = line.pdu(&Usual::default(), &Names::default());
            }
        }

        #[test]
        fn no_word_panics(
            name in "(ScsiCommand|DataOut|LoginRequest|SnackRequest|TaskManagementRequest|NopIn|DataIn|R2t|ScsiResponse|AsyncMessage)",
            field in "(itt|lun|cdb|csg|isid|cid|priority|extended_cdb|type|function|status|response|underflow|event|len)",
            value in "[0-9a-fx]{1,40}",
        ) {
            if let Ok((pdu, ahs)) = line(&format!("{name} {field}={value}")).pdu(&Usual::default(), &Names::default()) {
                let bhs: Bhs = pdu.to_bhs();
                let _ = one_line(&bhs, &ahs);
            }
        }
    }
}
