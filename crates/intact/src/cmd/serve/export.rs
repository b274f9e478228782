//! The units of the server as NBD exports: `TARGET/LUN`, `TARGET` for LUN 0, and the empty name for the only unit.

use std::sync::Arc;
use std::time::Duration;

use lun::Unit;
use nbd::counters::{COMMANDS, ERRORS, Refusal};
use nbd::{Counters, Denied, Export, Exports, Options, Peer, StartError, TlsOptions};
use scsi::Outcome;
use server::config::{Config, NbdConfig};
use server::metrics::{Family, MoreFamilies};
use target::{ServedUnit, Server};

/// NBD requests may use this part of the memory limit of iSCSI in addition, up to a bound.
const BUFFER_SHARE: u64 = 4;
const BUFFER_BYTES_MAX: u64 = 256 << 20;

/// Exports what `server` serves, if `config` requests it.
pub fn start(config: &Config, server: &Arc<Server>) -> Result<Option<nbd::Server>, StartError> {
    let Some(NbdConfig { listen, tls }) = &config.nbd else { return Ok(None) };
    let options = Options {
        listen: listen.clone(),
        tls: tls.as_ref().map(|tls| TlsOptions {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            client_ca: tls.client_ca.clone(),
            required: tls.required,
        }),
        buffer_bytes_max: (config.target.limits.buffer_bytes_max / BUFFER_SHARE).min(BUFFER_BYTES_MAX),
    };
    let exports = Arc::new(Units(Arc::clone(server)));
    let server = Arc::clone(server);
    nbd::Server::start(&options, exports, Arc::new(move |lane, job| server.offload(lane, job))).map(Some)
}

/// The counters of `server`, for `/metrics`.
pub fn families(server: &nbd::Server) -> Arc<dyn MoreFamilies> {
    Arc::new(NbdFamilies(Arc::clone(server.counters())))
}

struct NbdFamilies(Arc<Counters>);

impl MoreFamilies for NbdFamilies {
    fn families(&self) -> Vec<Family> {
        let Self(counters) = self;
        let family = |name, help, samples| Family { name, help, is_counter: true, samples };
        let requests = COMMANDS.into_iter().zip(counters.requests());
        let errors = ERRORS.into_iter().zip(counters.errors());
        vec![
            Family {
                is_counter: false,
                ..family(
                    "nbd_connections",
                    "NBD connections that are served",
                    vec![(vec![], counters.open())],
                )
            },
            family(
                "nbd_connections_served",
                "NBD connections that were served",
                [(false, "no"), (true, "yes")]
                    .map(|(tls, word)| (vec![("tls", word)], counters.served(tls)))
                    .into(),
            ),
            family(
                "nbd_connections_refused",
                "NBD connections that were not served, by reason",
                Refusal::ALL.map(|why| (vec![("reason", why.label())], counters.refused(why))).into(),
            ),
            family(
                "nbd_requests",
                "NBD requests, by command",
                requests.map(|(name, count)| (vec![("command", name)], count)).collect(),
            ),
            family(
                "nbd_errors",
                "NBD replies with an error, by error",
                errors.map(|((_, name), count)| (vec![("error", name)], count)).collect(),
            ),
            family(
                "nbd_data_bytes",
                "Data of NBD writes received and of reads sent, bytes",
                vec![
                    (vec![("direction", "rx")], counters.received_bytes()),
                    (vec![("direction", "tx")], counters.sent_bytes()),
                ],
            ),
        ]
    }
}

/// The name of a unit for NBD clients.
pub fn name_of(target: &str, lun: u16) -> String {
    format!("{target}/{lun}")
}

struct Units(Arc<Server>);

#[derive(Debug)]
struct ExportedUnit(ServedUnit);

/// NBD has no CHAP. A unit with access control in iSCSI is therefore exported only to clients with certificates.
fn may_use(unit: &ServedUnit, peer: &Peer) -> bool {
    unit.is_open() || peer.proven
}

impl Exports for Units {
    fn names(&self, peer: &Peer) -> Vec<String> {
        let units = self.0.units();
        units
            .iter()
            .filter(|unit| may_use(unit, peer))
            .map(|unit| name_of(unit.target_name(), unit.lun()))
            .collect()
    }

    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Denied> {
        let numbered = name.rsplit_once('/').and_then(|(target, lun)| Some((target, lun.parse().ok()?)));
        let unit = match (name, numbered) {
            ("", _) => {
                let mut mine = self.0.units();
                mine.retain(|unit| may_use(unit, peer));
                if mine.len() == 1 { mine.pop() } else { None }
            }
            (_, Some((target, lun))) => self.0.unit(target, lun),
            (target, None) => self.0.unit(target, 0),
        };
        match unit {
            None => Err(Denied::Unknown),
            Some(unit) if !may_use(&unit, peer) => Err(Denied::NeedsProof),
            Some(unit) if !unit.is_ready() => Err(Denied::NotReady),
            Some(unit) => Ok(Arc::new(ExportedUnit(unit))),
        }
    }
}

impl Export for ExportedUnit {
    fn name(&self) -> String {
        name_of(self.0.target_name(), self.0.lun())
    }

    fn description(&self) -> String {
        let config = self.0.unit().scsi.config();
        format!("{}, serial {}", config.identity.product, config.identity.serial)
    }

    fn unit(&self) -> &Arc<Unit> {
        self.0.unit()
    }

    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn ended(&self, cdb: &[u8], bytes: u64, elapsed: Duration, outcome: &Outcome) {
        self.0.count(cdb, bytes, elapsed, outcome);
    }
}
