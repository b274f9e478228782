//! What is broken on purpose, to check that the judges notice.

/// A defect inserted between the product and its environment, to check that the judge notices it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// The store drops one write and reports success.
    LostWrite,
    /// The store fails every write.
    DeadStore,
    /// The store flips a bit of a byte that is read.
    RottenByte,
    /// Bits flip where no digest covers them.
    FlipWithoutDigest,
    /// Flushes are not performed.
    LostFlush,
    /// A COMPARE AND WRITE is repeated if its outcome is unknown.
    Resubmission,
    /// Losses in a power cut are not reported.
    UntoldLoss,
    /// The other volume has the name of the first.
    SameName,
    /// The target's accounts have the secret of initiators that must not get in.
    StolenAccounts,
}
