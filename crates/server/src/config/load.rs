//! From the text of a file, or from a command line, to a checked [`Config`].

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use blockstore::StoreSpec;
use iscsi_core::names::IscsiName;
use target::config::{Auth, DEFAULT_GROUP_TAG, PortalConfig, TargetConfig};
use toml::de::DeTable;

use super::auth::{self, Secrets};
use super::model::{Config, ControlSocket};
use super::overrides::{Overrides, parse_address};
use super::problem::{Problem, Source};
use super::reader::{At, Section};
use super::{nbd, settings, targets};

/// The port of iSCSI (RFC 7143 14).
pub const DEFAULT_PORT: u16 = 3260;
/// The target of a server for which none is configured.
pub const DEFAULT_TARGET: &str = "iqn.2026-01.io.intact:disk";
/// The store of a server for which none is configured.
pub const DEFAULT_STORE: &str = "ram:1G";
/// Largest configuration file, bytes.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// Longest path of a Unix socket, bytes (unix(7)), less what the temporary name of a socket adds.
const MAX_SOCKET_PATH_BYTES: usize = 107 - 12;

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings about it.
    pub warnings: Vec<Problem>,
}

/// Parses an address to listen on: `ADDR:PORT`, or `ADDR` for port 3260; IPv6 addresses with a port are in brackets.
pub fn parse_listen(text: &str) -> Option<SocketAddr> {
    parse_address(text, DEFAULT_PORT)
}

/// Like [`parse_listen`], with the port of NBD, 10809.
pub fn parse_nbd_listen(text: &str) -> Option<SocketAddr> {
    parse_address(text, nbd::DEFAULT_PORT)
}

impl Config {
    /// Parses the text of a file; `path` is its name for messages, and the base of relative paths in it.
    ///
    /// # Errors
    /// All problems, including warnings, in file order, if one of them is an error.
    pub fn from_toml(text: &str, path: &Path) -> Result<Config, Vec<Problem>> {
        Self::load(text, path, &Overrides::default()).map(|loaded| loaded.config)
    }

    /// Reads a file, then does the same as [`Config::load`].
    ///
    /// # Errors
    /// All problems, if one of them is an error.
    pub fn load_file(path: &Path, overrides: &Overrides) -> Result<Loaded, Vec<Problem>> {
        use std::io::Read;
        let refuse = |what: String, remedy: &str| {
            vec![Problem { path: Some(path.to_owned()), ..Problem::new(what, "", remedy) }]
        };
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| {
                refuse(format!("the file cannot be read: {error}"), "name a file that the server may read")
            })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(refuse(
                format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20),
                "name a configuration file; examples/intact.toml shows one",
            ));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| refuse("the file is not UTF-8 text".to_owned(), "save it as UTF-8"))?;
        Self::load(&text, path, overrides)
    }

    /// Parses the text of a file, together with the settings of the command line.
    ///
    /// # Errors
    /// All problems, including warnings, in file order, if one of them is an error.
    pub fn load(text: &str, path: &Path, overrides: &Overrides) -> Result<Loaded, Vec<Problem>> {
        let mut source = Source::new(path, text);
        let (table, errors) = DeTable::parse_recoverable(text);
        let syntax = !errors.is_empty();
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            source.error(
                &at,
                error.message().trim_end().replace('\n', "; "),
                "TOML 1.1",
                "mend the form of this line; https://toml.io shows it",
            );
        }
        let config = read(&mut source, Section::top(table), overrides);
        let mut problems = source.problems;
        if syntax {
            // Values parsed from a broken text are guesses: only certain errors are reported.
            problems.retain(|problem| problem.rule == "TOML 1.1");
        }
        problems.sort_by_key(|problem| (problem.line, problem.column));
        match problems.iter().any(Problem::is_error) {
            true => Err(problems),
            false => Ok(Loaded { config, warnings: problems }),
        }
    }

    /// A configuration without a file: one target with `luns` numbered from 0. The defaults are 127.0.0.1:3260, a name
    /// of our own, and 1 GiB of memory.
    ///
    /// # Errors
    /// The name is invalid, a store is given twice, or the addresses cannot be used together or not without protection.
    pub fn quick(
        target: Option<&str>,
        luns: Vec<StoreSpec>,
        overrides: &Overrides,
    ) -> Result<Config, Vec<Problem>> {
        let mut problems = Vec::new();
        let name = IscsiName::parse(target.unwrap_or(DEFAULT_TARGET)).or_else(|violation| {
            problems.push(Problem::new(
                violation.what,
                violation.rule,
                "write for example --target iqn.2004-10.com.example:disk",
            ));
            IscsiName::parse(DEFAULT_TARGET)
        });
        let luns = match luns.is_empty() {
            true => DEFAULT_STORE.parse().into_iter().collect(),
            false => luns,
        };
        for (i, store) in luns.iter().enumerate() {
            if let Some(path) = store.path()
                && luns[..i].iter().any(|other| other.path() == Some(path))
            {
                problems.push(Problem::new(
                    format!("{} is the store of two logical units", path.display()),
                    "a store has one logical unit",
                    "give each --lun a file of its own",
                ));
            }
        }
        if luns.len() > usize::from(targets::MAX_LUN) + 1 {
            problems.push(Problem::new(
                "there are more logical units than numbers",
                "SAM-5 4.7.7.4",
                "use fewer",
            ));
        }
        let Ok(name) = name else { return Err(problems) };
        let portals = portals_of(overrides).unwrap_or_else(default_portals);
        let target = target::config::Config {
            portals,
            state_dir: overrides.state_dir.clone(),
            require_every_store: overrides.require_every_store,
            ..target::config::Config::new(&[], vec![TargetConfig::new(name, luns)])
        };
        let config = Config {
            target,
            control_socket: control_of(overrides).unwrap_or_default(),
            metrics: overrides.metrics,
            nbd: nbd::with_overrides(None, overrides),
            allow_open_access: overrides.allow_open_access,
        };
        problems.extend(duplicate_portals(&config.target.portals).into_iter().map(|(_, problem)| problem));
        problems.extend(exposed(&config).into_iter().map(|(_, problem)| problem));
        match problems.is_empty() {
            true => Ok(config),
            false => Err(problems),
        }
    }
}

fn default_portals() -> Vec<PortalConfig> {
    let address = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT));
    vec![PortalConfig { address, group_tag: DEFAULT_GROUP_TAG }]
}

fn portals_of(overrides: &Overrides) -> Option<Vec<PortalConfig>> {
    let portal = |address: &SocketAddr| PortalConfig { address: *address, group_tag: DEFAULT_GROUP_TAG };
    (!overrides.listen.is_empty()).then(|| overrides.listen.iter().map(portal).collect())
}

fn control_of(overrides: &Overrides) -> Option<ControlSocket> {
    overrides.control_socket.clone().map(ControlSocket::At)
}

fn read(source: &mut Source<'_>, mut top: Section<'_>, overrides: &Overrides) -> Config {
    let mut secrets = Secrets::default();
    let portals = portals(source, &mut top);
    let limits = settings::limits(source, &mut top);
    let bounds = settings::negotiation(source, &mut top, target::config::default_bounds());
    let control_socket = control(source, &mut top);
    let state_dir = top.text(source, "state_dir").map(|(text, _)| source.directory().join(text));
    let metrics = metrics(source, &mut top);
    let nbd = nbd::read(source, &mut top);
    let allow_open_access = top.boolean(source, "allow_open_access").unwrap_or(false);
    let require_every_store = top.boolean(source, "require_every_store").unwrap_or(false);
    let (discovery_auth, anybody_may_ask) = match top.table(source, "discovery") {
        Some(mut discovery) => {
            let auth = auth::read(source, &mut discovery, &mut secrets);
            let open = discovery.boolean(source, "open").unwrap_or(false);
            discovery.finish(source);
            (auth, open)
        }
        None => (Auth::None, false),
    };
    let targets = targets::read(source, &mut top, &bounds, &mut secrets);
    if discovery_auth == Auth::None && !anybody_may_ask {
        open_discovery(source, &targets);
    }
    secrets.check(source);
    top.finish(source);

    let (targets, places): (Vec<_>, Vec<_>) = targets.into_iter().unzip();
    let (file_portals, portal_places): (Vec<_>, Vec<_>) = portals.into_iter().unzip();
    let target = target::config::Config {
        portals: portals_of(overrides).unwrap_or(file_portals),
        targets,
        discovery_auth,
        limits,
        state_dir: overrides.state_dir.clone().or(state_dir),
        require_every_store: require_every_store || overrides.require_every_store,
    };
    let config = Config {
        target,
        control_socket: control_of(overrides).unwrap_or(control_socket),
        metrics: overrides.metrics.or(metrics),
        nbd: nbd::with_overrides(nbd, overrides),
        allow_open_access: allow_open_access || overrides.allow_open_access,
    };
    for (index, problem) in duplicate_portals(&config.target.portals) {
        let at = portal_places.get(index).cloned().unwrap_or(0..0);
        source.error(&at, problem.what, problem.rule, problem.remedy);
    }
    groups(source, &config.target, &places);
    for (index, problem) in exposed(&config) {
        source.error(&places[index], problem.what, problem.rule, problem.remedy);
    }
    config
}

/// Discovery has separate accounts, because hosts keep them separate; without accounts it answers any initiator that can
/// reach it.
fn open_discovery(source: &mut Source<'_>, targets: &[At<TargetConfig>]) {
    let guarded = |(target, _): &At<TargetConfig>| target.auth != Auth::None;
    if !targets.is_empty() && targets.iter().all(guarded) {
        source.warn(
            &(0..0),
            "discovery tells anybody the names of the targets, all of which need CHAP",
            "RFC 7143 9.2: discovery sessions authenticate by what is configured for them",
            "add [[discovery.chap.account]] (hosts then need it for discovery too), or say that it is wanted: [discovery] \
             open = true",
        );
    }
}

/// `listen`, a list of addresses, and `[[portal]]` for those with a group tag.
fn portals(source: &mut Source<'_>, top: &mut Section<'_>) -> Vec<At<PortalConfig>> {
    let mut portals = Vec::new();
    for (text, at) in top.texts(source, "listen").into_iter().flatten() {
        if let Some(address) = listen(source, &text, &at) {
            portals.push((PortalConfig { address, group_tag: DEFAULT_GROUP_TAG }, at));
        }
    }
    for mut section in top.tables(source, "portal") {
        let group_tag = section
            .number(source, "group_tag", 0..=65_535, "RFC 7143 13.9")
            .and_then(|tag| u16::try_from(tag).ok())
            .unwrap_or(DEFAULT_GROUP_TAG);
        match section.text(source, "address") {
            Some((text, at)) => {
                if let Some(address) = listen(source, &text, &at) {
                    portals.push((PortalConfig { address, group_tag }, at));
                }
            }
            None => section.missing(source, "address", "add address = \"192.0.2.1:3260\" with your address"),
        }
        section.finish(source);
    }
    if portals.is_empty() {
        portals = default_portals().into_iter().map(|portal| (portal, 0..0)).collect();
    }
    portals
}

fn listen(source: &mut Source<'_>, text: &str, at: &Range<usize>) -> Option<SocketAddr> {
    let address = parse_listen(text);
    if address.is_none() {
        let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
        source.error(
            at,
            format!("\"{shown}\" is no address to listen on"),
            "",
            "write an IP address with a port, such as \"192.0.2.1:3260\" or \"[2001:db8::1]:3260\"",
        );
    }
    address
}

fn control(source: &mut Source<'_>, top: &mut Section<'_>) -> ControlSocket {
    let Some(mut section) = top.table(source, "control") else { return ControlSocket::Default };
    let socket = match section.text_or_false(source, "socket") {
        None => ControlSocket::Default,
        Some((None, _)) => ControlSocket::Off,
        Some((Some(text), at)) => {
            let path = source.directory().join(text);
            let bytes = path.as_os_str().len();
            if bytes > MAX_SOCKET_PATH_BYTES {
                let what = format!("the path of the control socket is {bytes} bytes long");
                let remedy = format!("use a path of at most {MAX_SOCKET_PATH_BYTES} bytes");
                source.error(&at, what, "unix(7)", remedy);
            }
            ControlSocket::At(path)
        }
    };
    section.finish(source);
    socket
}

fn metrics(source: &mut Source<'_>, top: &mut Section<'_>) -> Option<SocketAddr> {
    let mut section = top.table(source, "metrics")?;
    let address = match section.text(source, "listen") {
        Some((text, at)) => {
            let address = text.parse::<SocketAddr>().ok();
            match address {
                None => source.error(
                    &at,
                    "this is no address for metrics",
                    "",
                    "write an IP address and a port, such as \"127.0.0.1:9260\"",
                ),
                Some(address) if !address.ip().to_canonical().is_loopback() => source.warn(
                    &at,
                    "metrics are served to other machines, without proof of who asks",
                    "",
                    "let a proxy in front of them ask, or listen on 127.0.0.1",
                ),
                Some(_) => {}
            }
            address
        }
        None => {
            section.missing(source, "listen", "add listen = \"127.0.0.1:9260\", or remove [metrics]");
            None
        }
    };
    section.finish(source);
    address
}

/// Addresses that cannot be listened on together, each with the index of the later one.
fn duplicate_portals(portals: &[PortalConfig]) -> Vec<(usize, Problem)> {
    let covers = |a: SocketAddr, b: SocketAddr| {
        a.port() == b.port()
            && a.port() != 0
            && (a.ip() == b.ip() || (a.is_ipv4() == b.is_ipv4() && a.ip().is_unspecified()))
    };
    let mut problems = Vec::new();
    for (i, portal) in portals.iter().enumerate() {
        let (a, earlier) = (portal.address, &portals[..i]);
        if let Some(other) = earlier.iter().find(|o| covers(o.address, a) || covers(a, o.address)) {
            problems.push((
                i,
                Problem::new(
                    format!("{a} is already covered by {}", other.address),
                    "an address has one portal",
                    "remove one of the two, or use another port",
                ),
            ));
        }
    }
    problems
}

/// Reports group tags that no portal has, but on which a target should be served or for which an access state is given.
fn groups(source: &mut Source<'_>, config: &target::config::Config, places: &[Range<usize>]) {
    for (target, at) in config.targets.iter().zip(places) {
        let name = &target.name;
        let served = target.portals.iter().flatten();
        let served =
            served.map(|tag| (*tag, format!("on which {name} is to be served"), "it from portal_groups"));
        let given = target.access_states.iter();
        let given =
            given.map(|(tag, _)| (*tag, format!("whose state {name} gives"), "its [[target.port_group]]"));
        for (tag, why, listed) in served.chain(given) {
            if !config.portals.iter().any(|portal| portal.group_tag == tag) {
                source.error(
                    at,
                    format!("no portal has the group tag {tag}, {why}"),
                    "RFC 7143 13.9",
                    format!("add [[portal]] with group_tag = {tag}, or remove {listed}"),
                );
            }
        }
    }
}

/// Targets that anyone on the network could use, each with its index: rejected unless explicitly allowed.
fn exposed(config: &Config) -> Vec<(usize, Problem)> {
    if config.allow_open_access {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (i, target) in config.target.targets.iter().enumerate() {
        if target.auth != Auth::None || !target.access.is_open() {
            continue;
        }
        let portals = config.target.portals.iter().filter(|portal| target.is_served_on(portal.group_tag));
        let nbd = config.nbd.iter().filter(|nbd| !nbd.proves_clients()).flat_map(|nbd| &nbd.listen);
        let mut addresses = portals.map(|portal| &portal.address).chain(nbd);
        if let Some(address) = addresses.find(|address| !address.ip().to_canonical().is_loopback()) {
            problems.push((
                i,
                Problem::new(
                    format!("anybody who reaches {address} could use {}", target.name),
                    "beyond loopback, a target has CHAP or an access rule",
                    "add [target.chap] or [[target.access]] in a configuration file, listen on 127.0.0.1, or \
                     say --allow-open-access (allow_open_access = true)",
                ),
            ));
        }
    }
    problems
}
