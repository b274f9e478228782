//! What `intact serve` prints when it is ready: lines to paste, or one line of JSON.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::json;
use server::{Config, ControlPlane};
use target::config::{Auth, TargetConfig};
use target::observe::{LunInfo, ServerView};

use super::export::name_of;
use crate::output;

/// The portals, and the addresses for NBD.
type Listening<'a> = (&'a [SocketAddr], &'a [SocketAddr]);

/// Prints it.
pub fn print(
    config: &Config,
    view: &dyn ServerView,
    listening: Listening<'_>,
    plane: &ControlPlane,
    as_json: bool,
) {
    let luns = view.luns();
    let text = match as_json {
        true => one_line(config, &luns, listening, plane),
        false => to_paste(config, &luns, listening, plane),
    };
    // The server continues even if the output is closed.
    let _ = output::print(&text);
}

/// An address of `portal` that a client on this machine can use.
fn reachable(portal: SocketAddr) -> SocketAddr {
    let ip = match portal.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, portal.port())
}

fn one_line(
    config: &Config,
    luns: &[LunInfo],
    (portals, nbd): Listening<'_>,
    plane: &ControlPlane,
) -> String {
    let exports = nbd.first().copied().map(reachable);
    let portal = portals.first().copied().map(reachable);
    let luns: Vec<_> = luns
        .iter()
        .map(|lun| {
            json!({
                "target": lun.target,
                "lun": lun.lun,
                "store": lun.store,
                "size_bytes": lun.face.size_bytes,
                "serial": lun.face.serial,
                "url": portal.map(|portal| format!("iscsi://{portal}/{}/{}", lun.target, lun.lun)),
                "nbd": exports.map(|at| format!("nbd://{at}/{}", name_of(&lun.target, lun.lun))),
            })
        })
        .collect();
    let targets: Vec<_> = config.target.targets.iter().map(|target| target.name.as_str()).collect();
    let line = json!({
        "portals": portals,
        "nbd": nbd,
        "targets": targets,
        "luns": luns,
        "pid": std::process::id(),
        "control": plane.control_socket(),
        "metrics": plane.metrics_address(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    format!("{line}\n")
}

fn to_paste(
    config: &Config,
    luns: &[LunInfo],
    (portals, nbd): Listening<'_>,
    plane: &ControlPlane,
) -> String {
    let mut text = format!("intact {} is ready\n\n", env!("CARGO_PKG_VERSION"));
    let mut table = output::Table::new(&["TARGET", "LUN", "SIZE", "STORE"]);
    for lun in luns {
        table.row(vec![
            lun.target.clone(),
            lun.lun.to_string(),
            output::bytes(lun.face.size_bytes),
            lun.store.clone(),
        ]);
    }
    text.push_str(&table.text());
    let list: Vec<String> = portals.iter().map(ToString::to_string).collect();
    text.push_str(&format!("\nListening on {}\n", list.join(", ")));
    if !nbd.is_empty() {
        let list: Vec<String> = nbd.iter().map(ToString::to_string).collect();
        text.push_str(&format!("NBD on {}\n", list.join(", ")));
    }
    if let Some(address) = plane.metrics_address() {
        text.push_str(&format!("Metrics on http://{address}/metrics\n"));
    }
    let servable = |target: &&TargetConfig| target.redirect.is_none() && !target.luns.is_empty();
    let Some(target) = config.target.targets.iter().find(servable) else { return text };
    let group = |portal: &SocketAddr| {
        // The configuration does not have ports chosen by the system; then the order decides.
        let index = portals.iter().position(|p| p == portal)?;
        config.target.portals.get(index).map(|portal| portal.group_tag)
    };
    let served = |portal: &&SocketAddr| group(portal).is_none_or(|tag| target.is_served_on(tag));
    let Some(portal) = portals.iter().find(served).copied().map(reachable) else { return text };
    let (name, lun) = (&target.name, target.luns.iter().map(|lun| lun.number).min().unwrap_or(0));
    let url = format!("iscsi://{portal}/{name}/{lun}");
    text.push_str("\nTo paste");
    if let Auth::Chap { .. } = target.auth {
        text.push_str(
            " (with CHAP: libiscsi, QEMU and intact take LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD; \
             Linux takes node.session.auth.* by iscsiadm -o update)",
        );
    }
    text.push_str(":\n");
    let mut lines = vec![
        ("Linux", format!("iscsiadm -m discovery -t sendtargets -p {portal}")),
        ("", format!("iscsiadm -m node -T {name} -p {portal} --login")),
        ("QEMU", format!("qemu-img info {url}")),
        ("", format!("qemu-system-x86_64 -m 1G -drive file={url},format=raw,if=virtio")),
        ("libiscsi", format!("iscsi-ls -s iscsi://{portal}")),
        ("intact", format!("intact ls iscsi://{portal}")),
        ("", format!("intact cp FILE {url}")),
        ("", format!("intact bench {url}")),
    ];
    if let Some(at) = nbd.first().copied().map(reachable) {
        lines.push(("NBD", format!("nbdinfo nbd://{at}/{}", name_of(name.as_str(), lun))));
    }
    lines.push(("here", "intact ls sessions".to_owned()));
    for (who, line) in lines {
        text.push_str(&format!("  {who:9} {line}\n"));
    }
    if plane.control_socket().is_none() {
        text.push_str("  (no control socket: `intact ls sessions` cannot ask this server)\n");
    }
    text.push_str("\nCtrl-C ends it.\n");
    text
}
