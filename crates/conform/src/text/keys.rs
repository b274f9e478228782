//! The text keys of rows: what is offered, and what the answer must be.

use iscsi_wire::parse_number;
use std::fmt;

/// Keys that our side sends: `keys T MaxBurstLength=512`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// T of a login request: full feature phase is requested.
    pub(super) transit: bool,
    pub(super) pairs: Vec<(String, String)>,
}

impl Offer {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut transit, mut pairs) = (false, Vec::new());
        for word in words(text)? {
            match word.split_once('=') {
                Some((key, value)) => pairs.push((key.to_owned(), value.to_owned())),
                None if word == "T" => transit = true,
                None => {
                    return Err(format!("`{word}` is no key with a value: write `MaxBurstLength=4096`"));
                }
            }
        }
        Ok(Offer { transit, pairs })
    }
}

/// What a target answers in place of what its settings say: `keys MaxBurstLength=0x1000 !ImmediateData +TargetAlias=x`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Another value of a key that it answers.
    instead: Vec<(String, String)>,
    /// Keys that it does not answer.
    silent: Vec<String>,
    /// Pairs that it says, too.
    also: Vec<(String, String)>,
}

impl Answer {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut answer = Answer::default();
        for word in words(text)? {
            let wrong = || {
                format!(
                    "`{word}` is no answer: write `MaxBurstLength=4096`, `!MaxBurstLength`, or `+TargetAlias=disk`"
                )
            };
            let pair =
                |text: &str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            if let Some(key) = word.strip_prefix('!') {
                answer.silent.push(key.to_owned());
            } else if let Some(more) = word.strip_prefix('+') {
                answer.also.push(pair(more).ok_or_else(wrong)?);
            } else {
                answer.instead.push(pair(&word).ok_or_else(wrong)?);
            }
        }
        Ok(answer)
    }

    /// The keys whose answer differs: the initiator must offer one of them.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.instead.iter().map(|(key, _)| key.as_str()).chain(self.silent.iter().map(String::as_str))
    }

    /// Changes what the target would say.
    pub(super) fn apply(&self, pairs: &mut Vec<(String, String)>) {
        pairs.retain(|(key, _)| !self.silent.contains(key));
        for (key, value) in pairs.iter_mut() {
            if let Some((_, other)) = self.instead.iter().find(|(name, _)| name == key) {
                value.clone_from(other);
            }
        }
        pairs.extend(self.also.iter().cloned());
    }
}

/// What is demanded of the keys in an answer: `keys MaxBurstLength<=512 !InitiatorName`. `docs/conformance.md` lists the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    text: String,
    tests: Vec<Test>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// T of a login response.
    Transit(bool),
    /// No keys but these.
    Only(Vec<String>),
    Present(String),
    Absent(String),
    OneOf(String, Vec<String>),
    /// Another value, or none.
    Not(String, String),
    AtMost(String, u64),
    AtLeast(String, u64),
}

impl Demand {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let tests = words(text)?.iter().map(|word| Test::parse(word)).collect::<Result<_, _>>()?;
        Ok(Demand { text: text.to_owned(), tests })
    }

    /// The keys that it is about.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.tests
            .iter()
            .flat_map(|test| match test {
                Test::Transit(_) => &[],
                Test::Only(keys) => keys.as_slice(),
                Test::Present(key)
                | Test::Absent(key)
                | Test::OneOf(key, _)
                | Test::Not(key, _)
                | Test::AtMost(key, _)
                | Test::AtLeast(key, _) => std::slice::from_ref(key),
            })
            .map(String::as_str)
    }

    /// Do the keys of an answer meet it? `transit` is T of a login response; false for other texts.
    pub(super) fn is_met(&self, pairs: &[(String, String)], transit: bool) -> bool {
        self.tests.iter().all(|test| test.is_met(pairs, transit))
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys {}", self.text)
    }
}

impl Test {
    fn parse(word: &str) -> Result<Self, String> {
        let several = |text: &str| text.split('|').map(str::to_owned).collect();
        let number = |text: &str| parse_number(text).map_err(|_| format!("`{word}`: `{text}` is no number"));
        if word == "T" || word == "!T" {
            return Ok(Test::Transit(word == "T"));
        }
        if let Some(key) = word.strip_prefix('!') {
            return Ok(Test::Absent(key.to_owned()));
        }
        let Some((key, value)) = word.split_once('=') else { return Ok(Test::Present(word.to_owned())) };
        Ok(match (key, key.strip_suffix(['!', '<', '>'])) {
            ("only", _) => Test::Only(several(value)),
            (_, None) => Test::OneOf(key.to_owned(), several(value)),
            (_, Some(name)) if key.ends_with('!') => Test::Not(name.to_owned(), value.to_owned()),
            (_, Some(name)) if key.ends_with('<') => Test::AtMost(name.to_owned(), number(value)?),
            (_, Some(name)) => Test::AtLeast(name.to_owned(), number(value)?),
        })
    }

    fn is_met(&self, pairs: &[(String, String)], transit: bool) -> bool {
        let values = |key: &str| -> Vec<&str> {
            pairs.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
        };
        // A key that comes twice has no value.
        let value = |key: &str| match values(key)[..] {
            [value] => Some(value),
            _ => None,
        };
        let number = |key: &str| value(key).and_then(|value| parse_number(value).ok());
        match self {
            Test::Transit(wanted) => transit == *wanted,
            Test::Only(keys) => pairs.iter().all(|(key, _)| keys.contains(key)),
            Test::Present(key) => !values(key).is_empty(),
            Test::Absent(key) => values(key).is_empty(),
            Test::OneOf(key, wanted) => value(key).is_some_and(|value| wanted.iter().any(|one| one == value)),
            Test::Not(key, other) => !values(key).contains(&other.as_str()),
            Test::AtMost(key, most) => number(key).is_some_and(|number| number <= *most),
            Test::AtLeast(key, least) => number(key).is_some_and(|number| number >= *least),
        }
    }
}

/// Words between spaces. What stands between quotation marks belongs to one word, without the marks.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    if quoted {
        return Err(format!("a quotation mark is missing: {text}"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(demand: &str, answer: &str, transit: bool) -> bool {
        Demand::parse(demand).unwrap().is_met(&Offer::parse(answer).unwrap().pairs, transit)
    }

    #[test]
    fn demands() {
        for (demand, answer, is) in [
            ("A=1", "A=1", true),
            ("A=1", "A=2", false),
            ("A=1", "", false),
            ("A=1|2", "B=x A=2", true),
            ("A=1", "A=1 A=1", false),
            ("A!=1", "A=2", true),
            ("A!=1", "", true),
            ("A!=1", "A=2 A=1", false),
            ("!A", "B=1", true),
            ("!A", "A=", false),
            ("A<=0x10", "A=16", true),
            ("A<=16", "A=17", false),
            ("A<=16", "A=few", false),
            ("A>=16 A<=20", "A=18", true),
            ("A>=16", "", false),
            ("A", "A=", true),
            ("A", "B=1", false),
            ("only=A|B", "A=1", true),
            ("only=A|B", "A=1 C=1", false),
            ("", "A=1", true),
            ("A=\"a b\"", "A=\"a b\"", true),
        ] {
            assert_eq!(met(demand, answer, false), is, "{demand} / {answer}");
        }
        assert!(met("T", "", true) && !met("T", "", false) && met("!T", "", false) && !met("!T", "", true));
    }

    #[test]
    fn answers() {
        let said = |answer: &str, usual: &str| {
            let mut pairs = Offer::parse(usual).unwrap().pairs;
            Answer::parse(answer).unwrap().apply(&mut pairs);
            pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said("B=3 C=4", "A=1 B=2"), "A=1 B=3");
        assert_eq!(said("!A +D=a=b", "A=1 B=2"), "B=2 D=a=b");
        assert_eq!(said("+A=1", "A=1"), "A=1 A=1");
        assert_eq!(said("A=", "A=1"), "A=");
        assert_eq!(Answer::parse("A=1 !B +C=2").unwrap().keys().collect::<Vec<_>>(), ["A", "B"]);
        assert!(Answer::parse("A").unwrap_err().contains("`A` is no answer"));
        assert!(Answer::parse("+A").unwrap_err().contains("`+A` is no answer"));
    }

    #[test]
    fn offers() {
        let offer = Offer::parse("T InitiatorAlias=\"a  b\" MaxBurstLength= X-a=b=c").unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert!(offer.transit);
        assert_eq!(
            offer.pairs,
            [pair("InitiatorAlias", "a  b"), pair("MaxBurstLength", ""), pair("X-a", "b=c")]
        );
        assert!(Offer::parse("MaxBurstLength").unwrap_err().contains("no key with a value"));
        assert!(Offer::parse("A=\"b").unwrap_err().contains("quotation mark"));
        assert!(Demand::parse("A<=x").unwrap_err().contains("no number"));
    }
}
