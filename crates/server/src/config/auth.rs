//! CHAP accounts of a configuration. Secrets come from files or the environment, never from the configuration itself,
//! because it is copied, shown and kept in version control.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use iscsi_core::chap::{ChapAlgorithm, Credentials, Secret};
use iscsi_core::limits::MIN_CHAP_SECRET_BYTES;
use target::config::{Account, Auth, NamePattern};
use zeroize::Zeroizing;

use super::problem::Source;
use super::reader::{At, Section};

/// Longest secret, bytes.
pub(crate) const MAX_SECRET_BYTES: usize = 1024;
/// Longest CHAP name, bytes (text values, RFC 7143 6.1).
const MAX_CHAP_NAME_BYTES: usize = 255;

/// Secrets with their positions, to compare those of the two directions across the whole file.
#[derive(Default)]
pub(super) struct Secrets {
    /// Secrets with which initiators authenticate.
    initiators: Vec<Secret>,
    /// Secrets with which we authenticate.
    ours: Vec<At<Secret>>,
}

impl Secrets {
    /// Reports secrets that are used in both directions.
    //= rfc7143 9.2.1 SEC-08
    pub(super) fn check(&self, source: &mut Source<'_>) {
        for (secret, at) in &self.ours {
            if self.initiators.contains(secret) {
                source.error(
                    at,
                    "the secret of `mutual` is also that of an account",
                    "RFC 7143 9.2.1: each direction has a secret of its own",
                    "make another secret for the target: head -c 24 /dev/urandom | base64",
                );
            }
        }
    }
}

/// Reads `[...chap]` below `parent`.
pub(super) fn read(source: &mut Source<'_>, parent: &mut Section<'_>, secrets: &mut Secrets) -> Auth {
    let Some(mut chap) = parent.table(source, "chap") else { return Auth::None };
    let algorithms = algorithms(source, &mut chap);
    let mut accounts: Vec<Account> = Vec::new();
    let mut found = false;
    for mut section in chap.tables(source, "account") {
        found = true;
        let at = section.at.clone();
        let initiators = patterns(source, &mut section);
        if let Some(Credentials { name, secret }) = credentials(source, &mut section).map(|(c, _)| c) {
            if accounts.iter().any(|account| account.name == name) {
                let remedy = "give each account a name of its own, and list its initiators in it";
                source.error(&at, format!("CHAP name \"{name}\" is given twice"), "", remedy);
            }
            secrets.initiators.push(secret.clone());
            accounts.push(Account { name, secret, initiators });
        }
        section.finish(source);
    }
    if !found {
        chap.missing(
            source,
            "account",
            "add [[...chap.account]] with name and secret_file; without accounts nobody can log in",
        );
    }
    let mutual = chap.table(source, "mutual").and_then(|mut section| {
        let credentials = credentials(source, &mut section);
        section.finish(source);
        let (credentials, at) = credentials?;
        secrets.ours.push((credentials.secret.clone(), at));
        Some(credentials)
    });
    chap.finish(source);
    Auth::Chap { accounts, mutual, algorithms }
}

/// Reads `initiators`, a list of name patterns.
pub(super) fn patterns(source: &mut Source<'_>, section: &mut Section<'_>) -> Vec<NamePattern> {
    let mut patterns = Vec::new();
    for (text, at) in section.texts(source, "initiators").into_iter().flatten() {
        match NamePattern::parse(&text) {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => source.error(
                &at,
                error.to_string(),
                "RFC 7143 4.2.7",
                "write an initiator name, with * for any characters, such as \"iqn.2004-10.com.example:*\"",
            ),
        }
    }
    patterns
}

fn algorithms(source: &mut Source<'_>, chap: &mut Section<'_>) -> Vec<ChapAlgorithm> {
    let Some(names) = chap.texts(source, "algorithms") else { return ChapAlgorithm::ALL.to_vec() };
    let mut algorithms = Vec::new();
    for (name, at) in &names {
        let algorithm = match name.to_ascii_uppercase().as_str() {
            "MD5" => ChapAlgorithm::Md5,
            "SHA1" | "SHA-1" => ChapAlgorithm::Sha1,
            "SHA256" | "SHA-256" => ChapAlgorithm::Sha256,
            "SHA3-256" => ChapAlgorithm::Sha3_256,
            _ => {
                let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
                source.error(
                    at,
                    format!("\"{shown}\" is no hash for CHAP"),
                    "RFC 7143 12.1.3",
                    "choose from \"SHA3-256\", \"SHA-256\", \"SHA-1\", \"MD5\"",
                );
                continue;
            }
        };
        if !algorithms.contains(&algorithm) {
            algorithms.push(algorithm);
        }
    }
    if names.is_empty() {
        chap.empty(source, "algorithms", "leave it away for all of them, or name at least one");
    }
    algorithms
}

/// Reads `name` and the secret; returns the position of the secret too.
fn credentials(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<At<Credentials>> {
    let name = section.text(source, "name");
    if name.is_none() {
        section.missing(source, "name", "add name = \"...\", the CHAP name");
    }
    let name = name.filter(|(name, at)| {
        let usable = (1..=MAX_CHAP_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        if !usable {
            source.error(
                at,
                "the CHAP name cannot be sent",
                "RFC 7143 6.1",
                "write 1 to 255 bytes without control characters",
            );
        }
        usable
    });
    let secret = secret(source, section);
    let (secret, at) = secret?;
    Some((Credentials { name: name?.0, secret }, at))
}

const HOW: &str = "put it into a file that only the server's user can read, and write secret_file = \"PATH\" \
                   (or secret_env = \"VARIABLE\")";

//= rfc7143 9.2.1 SEC-10 SEC-15
fn secret(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<At<Secret>> {
    let mut refused = false;
    for key in ["secret", "password"] {
        if let Some(at) = section.forbidden(key) {
            let what = format!("`{key}` stands in the configuration");
            source.error(&at, what, "secrets are kept apart from configuration", HOW);
            refused = true;
        }
    }
    let file = section.text(source, "secret_file");
    let variable = section.text(source, "secret_env");
    let (bytes, at) = match (file, variable) {
        (Some((path, at)), None) => (from_file(source, &path, &at)?, at),
        (None, Some((name, at))) => (from_environment(source, &name, &at)?, at),
        (Some(_), Some((_, at))) => {
            source.error(&at, "both `secret_file` and `secret_env` are given", "", "keep one of them");
            return None;
        }
        (None, None) if refused => return None,
        (None, None) => {
            section.missing(source, "secret_file", HOW);
            return None;
        }
    };
    if bytes.len() > MAX_SECRET_BYTES {
        let what = format!("the secret is longer than {MAX_SECRET_BYTES} bytes");
        source.error(&at, what, "", "use a shorter one; 24 bytes are plenty");
        return None;
    }
    let secret = Secret::new(bytes.to_vec());
    if !secret.is_long_enough() {
        source.error(
            &at,
            format!("the secret is shorter than {MIN_CHAP_SECRET_BYTES} bytes"),
            "RFC 7143 9.2.1: a CHAP secret has 96 bits or more",
            "make a longer one: head -c 24 /dev/urandom | base64",
        );
        return None;
    }
    Some((secret, at))
}

fn from_file(source: &mut Source<'_>, path: &str, at: &Range<usize>) -> Option<Zeroizing<Vec<u8>>> {
    let path = source.directory().join(path);
    let read = || -> std::io::Result<(Zeroizing<Vec<u8>>, std::fs::Metadata)> {
        let found = std::fs::metadata(&path)?;
        if !found.is_file() {
            return Err(std::io::Error::other("it is not a regular file"));
        }
        // Reads more than the maximum, so that a secret that is too long is detected and not truncated.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SECRET_BYTES + 3));
        File::open(&path)?.take(MAX_SECRET_BYTES as u64 + 3).read_to_end(&mut bytes)?;
        Ok((bytes, found))
    };
    match read() {
        Ok((mut bytes, found)) => {
            if found.mode() & 0o066 != 0 {
                source.warn(
                    at,
                    format!("others can read or change the secret file {}", path.display()),
                    "secrets are for the server alone",
                    format!("chmod 600 {}", path.display()),
                );
            }
            for end in [b'\n', b'\r'] {
                if bytes.last() == Some(&end) {
                    bytes.pop();
                }
            }
            Some(bytes)
        }
        Err(error) => {
            let what = format!("the secret file {} cannot be read: {error}", path.display());
            source.error(at, what, "", "make the file readable for the server, or mend the path");
            None
        }
    }
}

fn from_environment(source: &mut Source<'_>, name: &str, at: &Range<usize>) -> Option<Zeroizing<Vec<u8>>> {
    use std::os::unix::ffi::OsStringExt;
    if let Some(value) = std::env::var_os(name) {
        return Some(Zeroizing::new(value.into_vec()));
    }
    // Neither name nor line is repeated: users write the secret itself here by mistake.
    source.error_hidden(
        at,
        "the variable that `secret_env` names is not in the environment",
        "",
        "set it where the server is started, or use secret_file",
    );
    None
}
