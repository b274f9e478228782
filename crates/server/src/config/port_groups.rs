//! `[[target.port_group]]`: the access states of target port groups, and the management URL that units report.

use scsi::AccessState;

use super::problem::Source;
use super::reader::Section;

/// Longest URL (SPC-4 7.8.8 allows longer ones, which no host shows).
const MAX_URL_BYTES: usize = 255;

/// Reads every `[[target.port_group]]`.
//= spc4 5.15.2.3 ALU-01
pub(super) fn read(source: &mut Source<'_>, target: &mut Section<'_>) -> Vec<(u16, AccessState)> {
    let mut groups: Vec<(u16, AccessState)> = Vec::new();
    for mut section in target.tables(source, "port_group") {
        let tag = section.number(source, "tag", 0..=65_535, "RFC 7143 13.9");
        let tag = tag.and_then(|tag| u16::try_from(tag).ok());
        if tag.is_none() {
            section.missing(source, "tag", "add tag = N, the group_tag of its portals");
        }
        let state = state(source, &mut section);
        if let Some(tag) = tag {
            if groups.iter().any(|(other, _)| *other == tag) {
                let what = format!("the target port group {tag} is given twice");
                source.error(&section.at, what, "SPC-4 5.15.2.1", "say its state once");
            }
            groups.push((tag, state));
        }
        section.finish(source);
    }
    groups
}

fn state(source: &mut Source<'_>, section: &mut Section<'_>) -> AccessState {
    let Some((name, at)) = section.text(source, "access_state") else { return AccessState::default() };
    match AccessState::by_name(&name) {
        // A transition must end, and a configuration cannot say when.
        Some(state) if state != AccessState::Transitioning => state,
        _ => {
            let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            let remedy =
                "write \"active-optimized\", \"active-non-optimized\", \"standby\" or \"unavailable\"";
            source.error(
                &at,
                format!("`{shown}` is no state of a target port group"),
                "SPC-4 5.15.2.4",
                remedy,
            );
            AccessState::default()
        }
    }
}

/// `management_url`.
//= spc4 7.8.8 VPD-85
pub(super) fn management_url(source: &mut Source<'_>, target: &mut Section<'_>) -> Option<String> {
    let (url, at) = target.text(source, "management_url")?;
    let usable = (1..=MAX_URL_BYTES).contains(&url.len()) && url.bytes().all(|b| b.is_ascii_graphic());
    if !usable {
        let remedy =
            "write an address such as \"https://example.com/disks\", without spaces, of up to 255 bytes";
        source.error(&at, "`management_url` cannot be told by INQUIRY", "SPC-4 7.8.8", remedy);
    }
    usable.then_some(url)
}
