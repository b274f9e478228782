//! What a portal offers: its targets (SendTargets, RFC 7143 appendix C), and their logical units.

use iscsi_core::initiator::session::TargetRecord;
use iscsi_core::wire::Lun;

use crate::error::{ConnectError, IoError};
use crate::options::Options;
use crate::session::Session;

/// Why a portal did not list its targets.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// There was no session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The session returned no answer.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Asks the portal of `options`, in a discovery session, for the targets that are visible to us.
///
/// # Errors
/// Why it did not list them.
//= rfc7143 4.3 DSC-02
pub fn send_targets(options: &Options) -> Result<Vec<TargetRecord>, DiscoveryError> {
    let mut options = options.clone();
    options.target = None;
    let session = Session::connect(options)?;
    let records = session.send_targets("All")?;
    session.logout();
    Ok(records)
}

/// LUNs of the target of `session`.
///
/// # Errors
/// The target does not report them.
pub fn report_luns(session: &Session) -> Result<Vec<Lun>, IoError> {
    crate::disk::report_luns(session)
}
