//! `iscsi://[user[%password]@]host[:port][/target[/lun]][?key=value&...]`, the form that libiscsi and QEMU use.
//!
//! IPv6 addresses are in brackets. It is better to give a password in `LIBISCSI_CHAP_PASSWORD` or a file: every user of the
//! machine can see a command line. No password is ever shown: `Debug` and `Display` leave it out.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use engine::POLL_TIME_MAX;
use iscsi_core::chap::{Credentials, Secret};
use iscsi_core::initiator::address::DEFAULT_PORT;
use iscsi_core::initiator::login::ChapConfig;
use iscsi_core::initiator::session::Scheduling;
use iscsi_core::keys::{Form, Key, Value};
use iscsi_core::limits::MAX_INITIATOR_CONNECTIONS;
use iscsi_core::names::IscsiName;
use iscsi_core::params::{ALLEGIANCE_FREE, Asymmetric, DigestPolicy};
use iscsi_core::wire::{Lun, keys};

use crate::options::{EngineKind, Options, Paths, Portal};
use crate::protection::PiTags;
use crate::tuning::AUTO_CONNECTIONS;

/// The options of a URL. Negotiated keys can also be set, by their names in the configuration: [`negotiated`].
const OPTIONS: [&str; 13] = [
    "initiator",
    "target_user",
    "target_password",
    "connections",
    "erl",
    "engine",
    "portals",
    "local",
    "scheduling",
    "pi",
    "app_tag",
    "ref_tag",
    "poll_us",
];
/// Connections that one session may request.
pub const CONNECTIONS: std::ops::RangeInclusive<u16> = 1..=MAX_INITIATOR_CONNECTIONS as u16;

/// A parsed URL.
#[derive(Clone, PartialEq, Eq)]
pub struct IscsiUrl {
    /// CHAP name.
    pub user: Option<String>,
    password: Option<Secret>,
    /// The portal.
    pub portal: Portal,
    /// The target, if given.
    pub target: Option<IscsiName>,
    /// The logical unit, if given.
    pub lun: Option<u16>,
    /// Name with which the target must authenticate itself.
    pub target_user: Option<String>,
    target_password: Option<Secret>,
    /// Values for negotiated keys.
    wishes: Vec<(&'static Key, Value)>,
    /// Asymmetric use with halves.
    halves: bool,
    /// InitiatorName, if given.
    pub initiator: Option<IscsiName>,
    /// Connections of the session, if given; with `connections=auto` the most that it may open.
    pub connections: Option<u16>,
    /// The session chooses the number of its connections itself.
    tunes_connections: bool,
    /// How long to poll for events before sleeping, if given.
    poll_time: Option<Duration>,
    /// Highest ErrorRecoveryLevel to offer, if given.
    pub error_recovery_level: Option<u8>,
    /// What carries out the commands, if given.
    engine: Option<EngineKind>,
    /// Which ways its connections take.
    pub paths: Paths,
    /// How commands are distributed over connections, if given.
    scheduling: Option<Scheduling>,
    /// Protection information is generated and checked here.
    pub pi: bool,
    /// Application tag to write, and to expect when reading; needs `pi`.
    app_tag: Option<u16>,
    /// Reference tag of [`PiTags`]; needs `pi`.
    ref_tag: Option<u32>,
}

/// Why a text is no iSCSI URL, or why its secrets are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(String);

/// An error about a text that is no URL.
fn refuse(what: impl std::fmt::Display) -> UrlError {
    UrlError(format!("{what}; the form is iscsi://[user[%password]@]host[:port]/target/lun"))
}

/// An error about a URL whose secrets are not available.
fn lacking(what: impl Into<String>) -> UrlError {
    UrlError(what.into())
}

impl IscsiUrl {
    /// Whether `text` is meant as an iSCSI URL.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("iscsi://")
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong with it; the text never contains the password.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest =
            text.strip_prefix("iscsi://").ok_or_else(|| refuse("an iSCSI URL begins with iscsi://"))?;
        if rest.chars().any(|c| c.is_control() || c == ' ') {
            return Err(refuse("an iSCSI URL holds no spaces or control characters"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password, place) = match authority.rsplit_once('@') {
            None => (None, None, authority),
            Some((credentials, place)) => match credentials.split_once('%') {
                Some((user, password)) => (Some(user), Some(Secret::new(password)), place),
                None => (Some(credentials), None, place),
            },
        };
        if user.is_some_and(str::is_empty) {
            return Err(refuse("the user before @ is empty"));
        }
        let mut url = Self {
            user: user.map(str::to_owned),
            password,
            portal: parse_portal(place)?,
            target: None,
            lun: None,
            target_user: None,
            target_password: None,
            wishes: Vec::new(),
            halves: false,
            initiator: None,
            connections: None,
            tunes_connections: false,
            poll_time: None,
            error_recovery_level: None,
            engine: None,
            paths: Paths::default(),
            scheduling: None,
            pi: false,
            app_tag: None,
            ref_tag: None,
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        let (target, lun) = match path.split_once('/') {
            Some((target, lun)) => (target, Some(lun)),
            None => (path, None),
        };
        if !target.is_empty() {
            url.target = Some(IscsiName::parse(target).map_err(|v| refuse(v.what))?);
        }
        if let Some(lun) = lun {
            let index = lun.parse::<u16>().map_err(|_| refuse("the LUN is no number from 0 to 65535"))?;
            url.lun = Some(index);
        }
        for item in query.split('&').filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            url.take_option(key, value)?;
        }
        if !url.pi && (url.app_tag.is_some() || url.ref_tag.is_some()) {
            return Err(refuse("app_tag and ref_tag need pi=1"));
        }
        Ok(url)
    }

    /// Applies one `key=value` option from behind the question mark.
    ///
    /// # Errors
    /// There is no such key, or the value is malformed.
    pub fn take_option(&mut self, key: &str, value: &str) -> Result<(), UrlError> {
        match key {
            "target_user" => self.target_user = Some(value.to_owned()),
            "target_password" => self.target_password = Some(Secret::new(value)),
            "initiator" => {
                self.initiator = Some(IscsiName::parse(value).map_err(|violation| refuse(violation.what))?);
            }
            "connections" => self.take_connections(value)?,
            "erl" => {
                let level = value.parse().ok().filter(|level| *level <= 2);
                self.error_recovery_level = Some(level.ok_or_else(|| refuse("erl is 0, 1 or 2"))?);
            }
            "engine" => {
                let kind = EngineKind::named(value).ok_or_else(|| {
                    refuse(format!("engine is one of {}", EngineKind::ALL.map(EngineKind::name).join(", ")))
                })?;
                self.engine = Some(kind);
            }
            "portals" if value == "all" => self.paths.find_portals = true,
            "portals" => {
                let portals: Result<Vec<Portal>, _> = value.split(',').map(parse_portal).collect();
                self.paths.portals = portals?;
            }
            "local" => {
                let addresses: Result<Vec<IpAddr>, _> = value.split(',').map(str::parse).collect();
                self.paths.local_addresses = addresses
                    .map_err(|_| refuse("local is a list of addresses of this machine, with commas"))?;
            }
            "scheduling" => {
                self.scheduling = Some(match value {
                    "fill_first" => Scheduling::FillFirst,
                    "least_bytes" => Scheduling::LeastOutstandingBytes,
                    "round_robin" => Scheduling::RoundRobin,
                    _ => return Err(refuse("scheduling is fill_first, least_bytes or round_robin")),
                });
            }
            "pi" => self.pi = parse_switch(key, value)?,
            "app_tag" => {
                let wrong = || refuse("app_tag is a number of four hexadecimal digits, and not ffff");
                let tag = u16::from_str_radix(value, 16).ok().filter(|tag| *tag != 0xffff);
                self.app_tag = Some(tag.ok_or_else(wrong)?);
            }
            "ref_tag" => {
                let wrong = |_| refuse("ref_tag is a number of eight hexadecimal digits");
                self.ref_tag = Some(u32::from_str_radix(value, 16).map_err(wrong)?);
            }
            "poll_us" => {
                let time =
                    value.parse().ok().map(Duration::from_micros).filter(|time| *time <= POLL_TIME_MAX);
                let wrong = || refuse(format!("poll_us is 0 to {}", POLL_TIME_MAX.as_micros()));
                self.poll_time = Some(time.ok_or_else(wrong)?);
            }
            _ => self.take_negotiated(key, value)?,
        }
        Ok(())
    }

    /// Applies an option that is a negotiated key.
    fn take_negotiated(&mut self, key: &str, value: &str) -> Result<(), UrlError> {
        let Some(known) = negotiated().find(|known| known.setting() == Some(key)) else {
            let settings = negotiated().filter_map(Key::setting);
            let all: Vec<&str> = OPTIONS.into_iter().chain(settings).collect();
            return Err(refuse(format!("the option {key:?} is unknown: there are {}", all.join(", "))));
        };
        let is_asymmetric = known.name() == ALLEGIANCE_FREE;
        // The one switch with a third position.
        let halves = is_asymmetric && value == "halves";
        let value = if halves { Value::Switch(true) } else { parse_wish(known, value)? };
        if is_asymmetric {
            self.halves = halves;
        }
        self.wish(known, value);
        Ok(())
    }

    fn take_connections(&mut self, value: &str) -> Result<(), UrlError> {
        self.tunes_connections = value == "auto";
        let number = match value {
            "auto" => Some(AUTO_CONNECTIONS),
            number => number.parse().ok().filter(|n| CONNECTIONS.contains(n)),
        };
        let wrong = || refuse(format!("connections is auto or a number from 1 to {}", CONNECTIONS.end()));
        self.connections = Some(number.ok_or_else(wrong)?);
        Ok(())
    }

    fn wish(&mut self, key: &'static Key, value: Value) {
        self.wishes.retain(|(earlier, _)| *earlier != key);
        self.wishes.push((key, value));
    }

    /// Sets the policy of both digests, overriding the URL.
    pub fn set_digests(&mut self, policy: DigestPolicy) {
        for key in [keys::HEADER_DIGEST, keys::DATA_DIGEST].into_iter().filter_map(Key::named) {
            self.wish(key, Value::Word(policy.setting()));
        }
    }

    /// Takes user and password from the environment if the URL has none: `LIBISCSI_CHAP_USERNAME`, `LIBISCSI_CHAP_PASSWORD`,
    /// `LIBISCSI_CHAP_TARGET_USERNAME`, `LIBISCSI_CHAP_TARGET_PASSWORD`.
    pub fn with_environment(self) -> Self {
        self.with_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn with_variables(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        if self.user.is_none() {
            self.user = variable("LIBISCSI_CHAP_USERNAME");
        }
        if self.password.is_none() {
            self.password = variable("LIBISCSI_CHAP_PASSWORD").map(Secret::new);
        }
        if self.target_user.is_none() {
            self.target_user = variable("LIBISCSI_CHAP_TARGET_USERNAME");
        }
        if self.target_password.is_none() {
            self.target_password = variable("LIBISCSI_CHAP_TARGET_PASSWORD").map(Secret::new);
        }
        self
    }

    /// The secrets that the URL itself holds, each with the variable of the [environment](Self::with_environment) that may hold it
    /// instead.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            (&self.password, ("the password", "LIBISCSI_CHAP_PASSWORD")),
            (&self.target_password, ("target_password", "LIBISCSI_CHAP_TARGET_PASSWORD")),
        ];
        all.into_iter().filter(|(secret, _)| secret.is_some()).map(|(_, names)| names)
    }

    /// Takes the password from the first line of a file.
    ///
    /// # Errors
    /// The file cannot be read or is empty.
    pub fn with_password_file(mut self, path: &Path) -> Result<Self, UrlError> {
        self.password = Some(Secret::new(read_password(path)?));
        Ok(self)
    }

    /// CHAP as the URL requests it; `None` without a user.
    ///
    /// # Errors
    /// A name has no password, or a password no name.
    pub fn chap(&self) -> Result<Option<ChapConfig>, UrlError> {
        let target = match (&self.target_user, &self.target_password) {
            (Some(name), Some(secret)) => Some(Credentials { name: name.clone(), secret: secret.clone() }),
            (None, None) => None,
            _ => return Err(lacking("mutual CHAP needs both target_user and target_password")),
        };
        match (&self.user, &self.password) {
            (Some(name), Some(secret)) => {
                let own = Credentials { name: name.clone(), secret: secret.clone() };
                Ok(Some(ChapConfig { target, ..ChapConfig::one_way(own) }))
            }
            (None, None) if target.is_none() => Ok(None),
            (None, None) => Err(lacking("mutual CHAP needs a user and a password of our own too")),
            (Some(_), None) => Err(lacking(
                "a user without a password: set LIBISCSI_CHAP_PASSWORD, or give a file, or write user%password",
            )),
            (None, Some(_)) => Err(lacking(
                "a password without a user: write iscsi://user@host/..., or set LIBISCSI_CHAP_USERNAME",
            )),
        }
    }

    /// Options for the session that the URL describes.
    ///
    /// # Errors
    /// Those of [`IscsiUrl::chap`].
    pub fn options(&self) -> Result<Options, UrlError> {
        let mut options = Options::new(self.portal.clone(), self.target.clone());
        options.chap = self.chap()?;
        for (key, value) in &self.wishes {
            if !key.put(&mut options.bounds, *value) {
                return Err(refuse(format!("{} cannot be {value:?}", key.setting().unwrap_or_default())));
            }
        }
        if let Some(initiator) = &self.initiator {
            options.initiator = initiator.clone();
        }
        // Commands and data need a connection each.
        let least = if options.bounds.asymmetric.is_used() { 2 } else { 1 };
        options.connections = self.connections.unwrap_or(least).max(least);
        if self.halves {
            options.bounds.asymmetric = Asymmetric::Halves;
        }
        if self.halves && !options.connections.is_multiple_of(2) {
            return Err(refuse("asymmetric=halves needs an even number of connections"));
        }
        options.error_recovery_level = self.error_recovery_level;
        options.set_engine(self.engine.unwrap_or_default());
        options.paths.clone_from(&self.paths);
        if self.tunes_connections {
            if options.bounds.asymmetric.is_used() {
                return Err(refuse("connections=auto is not possible in asymmetric use"));
            }
            options.tune_connections(options.connections);
        }
        if let Some(scheduling) = self.scheduling {
            options.session.scheduling = scheduling;
        }
        if let Some(time) = self.poll_time {
            options.set_poll_time(time);
        }
        // A tag that is given should be checked.
        options.protection = self.pi.then(|| PiTags {
            app_tag: self.app_tag.unwrap_or(0),
            app_mask: if self.app_tag.is_some() { 0xffff } else { 0 },
            ref_tag: self.ref_tag,
        });
        Ok(options)
    }

    /// The target and the logical unit.
    ///
    /// # Errors
    /// The URL does not name both.
    pub fn unit(&self) -> Result<(&IscsiName, Lun), UrlError> {
        match (&self.target, self.lun) {
            (Some(target), Some(lun)) => Ok((target, Lun::from_index(lun))),
            (None, _) => Err(refuse("the URL names no target")),
            (_, None) => Err(refuse("the URL names no LUN")),
        }
    }
}

/// The password in the first line of a file.
///
/// # Errors
/// The file cannot be read or is empty.
pub fn read_password(path: &Path) -> Result<String, UrlError> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| lacking(format!("the password file {file} cannot be read: {error}")))?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => {
            Err(lacking(format!("the password file {file} is empty: the password stands in its first line")))
        }
    }
}

/// `host[:port]`, with an IPv6 address in brackets.
fn parse_portal(place: &str) -> Result<Portal, UrlError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner
                .split_once(']')
                .ok_or_else(|| refuse("the bracket of an IPv6 address is not closed"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() && !host.contains('%') {
                return Err(refuse("what stands in brackets is no IPv6 address"));
            }
            match rest {
                "" => (host, None),
                rest => (
                    host,
                    Some(rest.strip_prefix(':').ok_or_else(|| refuse("after ] comes :port or nothing"))?),
                ),
            }
        }
        None if place.matches(':').count() > 1 => return Err(refuse("an IPv6 address stands in brackets")),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(refuse("the host is missing"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => {
            let number = port.parse::<u16>().ok().filter(|&port| port != 0);
            number.ok_or_else(|| refuse("the port is no number from 1 to 65535"))?
        }
    };
    Ok(Portal::new(host, port))
}

fn parse_switch(key: &str, value: &str) -> Result<bool, UrlError> {
    match value {
        "" | "1" | "yes" => Ok(true),
        "0" | "no" => Ok(false),
        _ => Err(refuse(format!("{key} is 1 or 0"))),
    }
}

/// The keys that a URL may set by their name in the configuration. Two are excluded because they have options of their own, which
/// also set what depends on them: `connections` and `erl`.
fn negotiated() -> impl Iterator<Item = &'static Key> {
    Key::all().iter().filter(|key| {
        key.setting().is_some() && ![keys::MAX_CONNECTIONS, keys::ERROR_RECOVERY_LEVEL].contains(&key.name())
    })
}

/// The value that the text of an option means for `key`.
fn parse_wish(key: &Key, text: &str) -> Result<Value, UrlError> {
    let name = key.setting().unwrap_or_default();
    match key.form() {
        Some(Form::Number(range) | Form::Size(range)) => {
            let number = text.parse().ok().filter(|number| range.contains(number));
            let wrong = || refuse(format!("{name} is a number from {} to {}", range.start(), range.end()));
            number.map(Value::Number).ok_or_else(wrong)
        }
        Some(Form::Switch) => parse_switch(name, text).map(Value::Switch),
        Some(Form::Word(words)) => {
            let wanted = other_spelling(&text.to_ascii_lowercase()).to_owned();
            let word = words.iter().find(|word| **word == wanted);
            let wrong = || refuse(format!("{name} is one of {}", words.join(", ")));
            word.map(|word| Value::Word(word)).ok_or_else(wrong)
        }
        None => Err(refuse(format!("{name} cannot be set"))),
    }
}

/// Digest settings as libiscsi and QEMU write them in URLs.
fn other_spelling(word: &str) -> &str {
    match word {
        "none" => "off",
        "crc32c" | "on" => "required",
        "crc32c_none" | "none_crc32c" => "offered",
        own => own,
    }
}

/// Omits passwords.
impl fmt::Display for IscsiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iscsi://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        write!(f, "{}", self.portal)?;
        if let Some(target) = &self.target {
            write!(f, "/{target}")?;
        }
        if let Some(lun) = self.lun {
            write!(f, "/{lun}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for IscsiUrl {
    //= rfc7143 9.2.1 SEC-15
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IscsiUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use iscsi_core::params::TaskReporting;

    use super::*;

    #[test]
    fn every_part_is_found() {
        let url = IscsiUrl::parse(
            "iscsi://joe%se%cr@t@[fe80::1]:3261/iqn.2001-04.com.example:disk/7?header_digest=crc32c&data_digest=none",
        )
        .unwrap();
        assert_eq!(url.user.as_deref(), Some("joe"));
        assert_eq!(url.password, Some(Secret::new("se%cr@t")));
        assert_eq!(url.portal, Portal::new("fe80::1", 3261));
        assert_eq!(url.unit().unwrap().1, Lun::from_index(7));
        let bounds = |url: &IscsiUrl| url.options().unwrap().bounds;
        assert_eq!(bounds(&url).header_digest, DigestPolicy::Required);
        assert_eq!(bounds(&url).data_digest, DigestPolicy::Off);
        assert_eq!(url.to_string(), "iscsi://joe@[fe80::1]:3261/iqn.2001-04.com.example:disk/7");
        let plain = IscsiUrl::parse("iscsi://disk.example").unwrap();
        assert_eq!((plain.portal.port, plain.target, plain.lun), (3260, None, None));
        assert!(IscsiUrl::parse("iscsi://h/iqn.2001-04.com.example:disk/").unwrap().unit().is_err());
    }

    #[test]
    fn connections_and_what_belongs_to_them() {
        let options = |text: &str| IscsiUrl::parse(text).unwrap().options().unwrap();
        let plain = options("iscsi://h");
        assert_eq!(plain.engine(), EngineKind::None);
        assert_eq!(options("iscsi://h?engine=software").engine(), EngineKind::Software);
        assert_eq!(options("iscsi://h?engine=rtl").engine(), EngineKind::Rtl);
        let refused = IscsiUrl::parse("iscsi://h?engine=hardware").unwrap_err().to_string();
        assert!(refused.contains("engine is one of none, software, rtl"), "{refused}");
        assert_eq!((plain.connections, plain.login_bounds().max_connections), (1, 1));
        assert_eq!(plain.login_bounds().error_recovery_level, 0, "one connection is as it was");
        assert_eq!(plain.poll_time(), engine::POLL_TIME);
        assert_eq!(options("iscsi://h?poll_us=0").poll_time(), Duration::ZERO);
        assert_eq!(options("iscsi://h?poll_us=1000").poll_time(), POLL_TIME_MAX);
        let four = options("iscsi://h?connections=4&local=10.0.0.1,::1&scheduling=round_robin");
        let bounds = four.login_bounds();
        assert_eq!((bounds.max_connections, bounds.error_recovery_level), (4, 2));
        assert_eq!(four.session.scheduling, Scheduling::RoundRobin);
        assert_eq!(options("iscsi://h?connections=4&erl=1").login_bounds().error_recovery_level, 1);
        assert_eq!(options("iscsi://h?erl=2").login_bounds().error_recovery_level, 2);
        let auto = options("iscsi://h?connections=auto");
        assert!(auto.tunes_connections() && !four.tunes_connections());
        assert_eq!((auto.connections, auto.login_bounds().error_recovery_level), (AUTO_CONNECTIONS, 2));
        assert_eq!(auto.session.scheduling, Scheduling::LeastOutstandingBytes);
        let both = IscsiUrl::parse("iscsi://h?asymmetric=1&connections=auto").unwrap();
        assert!(both.options().unwrap_err().to_string().contains("asymmetric"));
        let asymmetric = options("iscsi://h?asymmetric=1&protocol_level=2&task_reporting=fast_abort");
        assert_eq!(asymmetric.connections, 2);
        let bounds = asymmetric.login_bounds();
        assert!(bounds.asymmetric == Asymmetric::Pairs && bounds.protocol_level == 2);
        assert_eq!(bounds.task_reporting, TaskReporting::FastAbort);
        let halves = options("iscsi://h?asymmetric=halves&connections=4").login_bounds();
        assert!(halves.asymmetric == Asymmetric::Halves && halves.max_connections == 4);
        let odd = IscsiUrl::parse("iscsi://h?asymmetric=halves&connections=3").unwrap().options();
        assert!(odd.unwrap_err().to_string().contains("even number"));
    }

    #[test]
    fn every_negotiated_key_can_be_set_by_its_name_in_the_configuration() {
        for key in negotiated() {
            let name = key.setting().unwrap();
            let (text, value) = match key.form().unwrap() {
                Form::Number(range) | Form::Size(range) => {
                    (range.end().to_string(), Value::Number(*range.end()))
                }
                Form::Switch => ("1".to_owned(), Value::Switch(true)),
                Form::Word(words) => (words[0].to_owned(), Value::Word(words[0])),
            };
            let mut wanted = Options::new(Portal::new("h", 3260), None).bounds;
            assert!(key.put(&mut wanted, value), "{name}");
            let url = IscsiUrl::parse(&format!("iscsi://h:3260?{name}={text}")).unwrap();
            assert_eq!(url.options().unwrap().bounds, wanted, "{name}");
        }
        let bounds = IscsiUrl::parse("iscsi://h?max_burst_length=4096").unwrap().options().unwrap().bounds;
        assert_eq!(bounds.bursts.max_burst_length, 4096);
        let error = IscsiUrl::parse("iscsi://h?max_burst_length=511").unwrap_err().to_string();
        assert!(error.contains("max_burst_length is a number from 512 to 16777215"), "{error}");
    }

    #[test]
    fn protection_information_is_off_until_asked_for_and_a_tag_that_is_given_is_checked() {
        let tags = |text: &str| IscsiUrl::parse(text).unwrap().options().unwrap().protection;
        assert_eq!((tags("iscsi://h"), tags("iscsi://h?pi=0")), (None, None));
        assert_eq!(tags("iscsi://h?pi=1"), Some(PiTags::default()));
        let both = PiTags { app_tag: 0xbeef, app_mask: 0xffff, ref_tag: Some(0x10) };
        assert_eq!(tags("iscsi://h?pi&app_tag=beef&ref_tag=10"), Some(both));
    }

    #[test]
    fn portals_and_the_addresses_that_go_with_them() {
        let options = |text: &str| IscsiUrl::parse(text).unwrap().options().unwrap();
        let several =
            options("iscsi://h?portals=10.0.0.2,[fe80::2]:3261,other:99&local=10.0.0.1,::1,10.0.0.5");
        let shown: Vec<String> = several.paths.portals.iter().map(Portal::to_string).collect();
        assert_eq!(shown, ["10.0.0.2:3260", "[fe80::2]:3261", "other:99"]);
        assert!(!several.paths.find_portals && options("iscsi://h?portals=all").paths.find_portals);
        let local = |cid, tries, remote: &str| {
            several
                .local_address(iscsi_core::wire::Cid(cid), tries, remote.parse().unwrap())
                .map(|a| a.to_string())
        };
        let v4 = [local(0, 0, "10.0.0.2:1"), local(1, 0, "10.0.0.2:1"), local(1, 1, "10.0.0.2:1")];
        assert_eq!(v4.map(Option::unwrap), ["10.0.0.1", "10.0.0.5", "10.0.0.1"]);
        assert_eq!(local(1, 0, "[fe80::2]:1").as_deref(), Some("::1"), "of the same family");
        let v4_only = options("iscsi://h?local=10.0.0.1");
        let remote = "[::1]:1".parse().unwrap();
        assert_eq!(v4_only.local_address(iscsi_core::wire::Cid(0), 0, remote), None);
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_form() {
        for bad in [
            "",
            "http://x",
            "iscsi://",
            "iscsi://@h",
            "iscsi://h:0",
            "iscsi://h:x",
            "iscsi://h:70000",
            "iscsi://::1/x",
            "iscsi://[::1",
            "iscsi://[::1]x",
            "iscsi://[nonsense]",
            "iscsi://h/notaname/0",
            "iscsi://h/iqn.2001-04.com.example/x",
            "iscsi://h/iqn.2001-04.com.example/65536",
            "iscsi://h/iqn.2001-04.com.example/0/1",
            "iscsi://h?what=1",
            "iscsi://h?header_digest=md5",
            "iscsi://h?connections=0",
            "iscsi://h?connections=65",
            "iscsi://h?connections=automatic",
            "iscsi://h?erl=3",
            "iscsi://h?local=here",
            "iscsi://h?portals=",
            "iscsi://h?portals=a:b",
            "iscsi://h?portals=a,::1",
            "iscsi://h?scheduling=fair",
            "iscsi://h?asymmetric=2",
            "iscsi://h?protocol_level=3",
            "iscsi://h?task_reporting=slow",
            "iscsi://h?pi=2",
            "iscsi://h?app_tag=12",
            "iscsi://h?pi=1&app_tag=ffff",
            "iscsi://h?pi=1&app_tag=12345",
            "iscsi://h?pi=1&ref_tag=x",
            "iscsi://h?poll_us=1001",
            "iscsi://h?poll_us=soon",
            "iscsi://h\n",
        ] {
            let error = IscsiUrl::parse(bad).expect_err(bad);
            assert!(error.to_string().contains("iscsi://["), "{error}");
        }
    }

    #[test]
    fn sec_15_no_password_in_any_text() {
        let secret = "hunter2hunter2";
        let url = IscsiUrl::parse(&format!(
            "iscsi://joe%{secret}@h/iqn.2001-04.com.example:d/0?target_user=t&target_password={secret}x"
        ))
        .unwrap();
        let mut texts = vec![url.to_string(), format!("{url:?}")];
        texts.push(format!("{:?}", url.options().unwrap()));
        for bad in [
            format!("iscsi://joe%{secret}@h:x"),
            format!("iscsi://joe%{secret}@h/bad/0"),
            format!("iscsi://joe%{secret}@"),
        ] {
            texts.push(IscsiUrl::parse(&bad).unwrap_err().to_string());
        }
        for text in texts {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn the_environment_fills_what_the_url_leaves_out() {
        let variables = |name: &str| match name {
            "LIBISCSI_CHAP_USERNAME" => Some("env".to_owned()),
            "LIBISCSI_CHAP_PASSWORD" => Some("from the environment".to_owned()),
            _ => None,
        };
        let chap = |text: &str| IscsiUrl::parse(text).unwrap().with_variables(variables).chap();
        assert_eq!(chap("iscsi://h").unwrap().unwrap().own.name, "env");
        let own = chap("iscsi://joe@h").unwrap().unwrap().own;
        assert_eq!((own.name.as_str(), own.secret), ("joe", Secret::new("from the environment")));
        assert!(IscsiUrl::parse("iscsi://joe@h").unwrap().chap().is_err(), "a user without a password");
        assert!(IscsiUrl::parse("iscsi://h?target_user=t&target_password=p").unwrap().chap().is_err());
    }

    // covers: SEC-16
    #[test]
    fn discovery_has_chap_of_its_own() {
        let url = IscsiUrl::parse("iscsi://joe%secretsecret@h/iqn.2001-04.com.example:d/0").unwrap();
        let mut discovery = url.options().unwrap();
        discovery.target = None;
        discovery.chap = None;
        assert!(url.options().unwrap().chap.is_some() && discovery.chap.is_none());
    }
}
