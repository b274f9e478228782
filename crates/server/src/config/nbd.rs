//! `[nbd]`: the units as NBD exports.

use std::path::PathBuf;

use super::model::{NbdConfig, NbdTls};
use super::overrides::{Overrides, parse_address};
use super::problem::Source;
use super::reader::Section;

/// The port of NBD (IANA).
pub(super) const DEFAULT_PORT: u16 = 10_809;

/// Reads the section.
pub(super) fn read(source: &mut Source<'_>, top: &mut Section<'_>) -> Option<NbdConfig> {
    let mut section = top.table(source, "nbd")?;
    let mut listen = Vec::new();
    match section.texts(source, "listen") {
        Some(texts) => {
            for (text, at) in texts {
                match parse_address(&text, DEFAULT_PORT) {
                    Some(address) => listen.push(address),
                    None => source.error(
                        &at,
                        "this is no address to listen on",
                        "",
                        "write an IP address with a port, such as \"127.0.0.1:10809\" or \"[2001:db8::1]:10809\"",
                    ),
                }
            }
        }
        None => section.missing(source, "listen", "add listen = [\"127.0.0.1:10809\"], or remove [nbd]"),
    }
    let mut file = |source: &mut Source<'_>, key: &'static str| {
        let (text, _) = section.text(source, key)?;
        Some(source.directory().join(text))
    };
    let certificate: Option<PathBuf> = file(source, "certificate");
    let key = file(source, "key");
    let client_ca = file(source, "client_ca");
    let required = section.boolean(source, "tls_required");
    let tls = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(NbdTls { certificate, key, client_ca, required: required.unwrap_or(true) })
        }
        (Some(_), None) => {
            section.missing(source, "key", "add key = \"server-key.pem\", the key of the certificate");
            None
        }
        (None, Some(_)) => {
            section.missing(source, "certificate", "add certificate = \"server-cert.pem\", or remove key");
            None
        }
        (None, None) if client_ca.is_some() => {
            section.missing(
                source,
                "certificate",
                "add certificate and key of the server, or remove client_ca",
            );
            None
        }
        // Otherwise everything would be served in the clear, although the file says that nothing is.
        (None, None) if required == Some(true) => {
            section.missing(
                source,
                "certificate",
                "add certificate and key of the server, or remove tls_required",
            );
            None
        }
        (None, None) => None,
    };
    section.finish(source);
    Some(NbdConfig { listen, tls })
}

/// The section of the file, with the addresses of the command line, if any, instead of its own.
pub(super) fn with_overrides(file: Option<NbdConfig>, overrides: &Overrides) -> Option<NbdConfig> {
    match overrides.nbd.is_empty() {
        true => file,
        false => Some(NbdConfig { listen: overrides.nbd.clone(), ..file.unwrap_or_default() }),
    }
}
