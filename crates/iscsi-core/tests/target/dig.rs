//! Digests.

use iscsi_core::digest::DigestScope;
use iscsi_core::params::DigestPolicy;

use crate::play::Peer;

const COMBINATIONS: [(&str, &str); 4] =
    [("None", "None"), ("CRC32C", "None"), ("None", "CRC32C"), ("CRC32C", "CRC32C")];

// covers: DIG-01, DIG-04
#[test]
fn dig_01_every_combination_carries_everything() {
    for (header, data) in COMBINATIONS {
        let mut peer = Peer::logged_in(&format!("HeaderDigest={header} DataDigest={data} InitialR2T=No"));
        assert_eq!(peer.params.digests, DigestScope { header: header == "CRC32C", data: data == "CRC32C" });
        peer.play(
            "I> NopOut itt=1 data=7
             T< NopIn itt=1 data=7
             I> ScsiCommand itt=2 F R edtl=9000
             D< Start itt=2
             D> complete itt=2 data=9000
             T< DataIn itt=2 data_sn=0 offset=0 data=8192 !F
             T< DataIn itt=2 data_sn=1 offset=8192 data=808 F status=0x00
             I> ScsiCommand itt=3 W edtl=1003 data=501
             D< Start itt=3
             I> DataOut itt=3 F offset=501 data=502
             D> need itt=3 bytes=1003
             D< DataOut itt=3 bytes=1003
             D> complete itt=3 transfer=1003
             T< ScsiResponse itt=3 status=0x00
             I> TextRequest itt=4 F | X-a=b
             T< TextResponse itt=4 F | X-a=NotUnderstood
             I> TaskManagementRequest I itt=5 function=AbortTask referenced_task_tag=9
             T< TaskManagementResponse itt=5",
        );
    }
}

#[test]
fn dig_05_the_first_supported_value_is_chosen() {
    use DigestPolicy::{Off, Offered, Required};
    for (policy, offer, answer) in [
        (Offered, "CRC32C", "CRC32C"),
        (Offered, "None", "None"),
        (Offered, "CRC32C,None", "CRC32C"),
        (Offered, "None,CRC32C", "None"),
        (Offered, "Foo,CRC32C", "CRC32C"),
        (Offered, "Foo", "Reject"),
        (Off, "CRC32C,None", "None"),
        (Off, "CRC32C", "Reject"),
        (Required, "None,CRC32C", "CRC32C"),
    ] {
        let mut peer = Peer::new();
        peer.policy.bounds.header_digest = policy;
        peer.play(&format!("I> LoginRequest csg=1 | @names HeaderDigest={offer}"));
        let reply = peer.output.pop_front().expect("an answer").line;
        assert!(reply.contains(&format!("HeaderDigest={answer}")), "{policy:?} {offer}: {reply}");
    }
    // Required and not offered: there is no session without it.
    let mut peer = Peer::new();
    peer.policy.bounds.data_digest = Required;
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names DataDigest=None
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

/// A required digest that the initiator does not mention is proposed by the target.
// covers: DIG-05, LGN-09
#[test]
fn dig_05_a_required_digest_is_proposed() {
    let mut peer = Peer::new();
    peer.policy.bounds.data_digest = DigestPolicy::Required;
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names
         T< LoginResponse status=Success !T | TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144 DataDigest=CRC32C
         I> LoginRequest T csg=1 nsg=3 | DataDigest=CRC32C
         T< LoginResponse status=Success T nsg=3 tsih=7",
    );
    assert!(peer.params.digests.data);
    let mut peer = Peer::new();
    peer.policy.bounds.data_digest = DigestPolicy::Required;
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @names
         T< LoginResponse status=Success !T
         I> LoginRequest T csg=1 nsg=3 | DataDigest=Reject
         T< LoginResponse status=InitiatorError
         D< Close Refused",
    );
}

// covers: DIG-08, DIG-10, DIG-11, NUM-13, REJ-01
#[test]
fn dig_08_a_bad_data_digest_is_rejected_with_the_header() {
    let mut peer = Peer::logged_in("DataDigest=CRC32C InitialR2T=No");
    peer.play(
        "I> NopOut itt=1 data=16 bad_digest
         T< Reject reason=DataDigestError of_opcode=0x00 of_itt=1 exp_cmd_sn=1
         I> NopOut itt=1 data=16 cmd_sn=1
         T< NopIn itt=1 data=16 exp_cmd_sn=2
         I> TextRequest itt=2 F bad_digest cmd_sn=2 | SendTargets=
         T< Reject reason=DataDigestError of_opcode=0x04 exp_cmd_sn=2
         I> ScsiCommand itt=3 F W edtl=512 data=512 bad_digest cmd_sn=2
         T< Reject reason=DataDigestError of_opcode=0x01 of_itt=3 exp_cmd_sn=2
         # The same command again, and it runs once.
         I> ScsiCommand itt=3 F W edtl=512 data=512 cmd_sn=2
         D< Start itt=3
         D> need itt=3 bytes=512
         D< DataOut itt=3 bytes=512
         D> complete itt=3 transfer=512
         T< ScsiResponse itt=3 status=0x00 exp_cmd_sn=3",
    );
}

// covers: DIG-09, DIG-11, REJ-02, RSP-01
#[test]
fn dig_09_bad_data_ends_the_write_after_the_last_f_bit() {
    let mut peer = Peer::logged_in(
        "DataDigest=CRC32C InitialR2T=Yes ImmediateData=No MaxBurstLength=1024 MaxOutstandingR2T=2 FirstBurstLength=512",
    );
    peer.play(
        "I> ScsiCommand itt=1 F W edtl=3072
         D< Start itt=1
         D> need itt=1 bytes=3072
         T< R2t itt=1 ttt=0 offset=0 len=1024
         T< R2t itt=1 ttt=1 offset=1024 len=1024
         I> DataOut itt=1 ttt=0 data_sn=0 offset=0 data=512 bad_digest
         T< Reject reason=DataDigestError of_opcode=0x05 of_itt=1
         D< Abandon itt=1
         D> gone itt=1
         # What is still owed is swallowed, not rejected; no further R2T.
         I> DataOut itt=1 ttt=0 data_sn=1 offset=512 data=512 F
         I> DataOut itt=1 ttt=1 data_sn=0 offset=1024 data=512
         I> DataOut itt=1 ttt=1 data_sn=1 offset=1536 data=512 F
         T< ScsiResponse itt=1 status=0x02 sense=b/47/05 underflow=3072",
    );
    // The bad PDU is the last one, and the device server releases the task late.
    peer.play(
        "I> ScsiCommand itt=2 F W edtl=512
         D< Start itt=2
         D> need itt=2 bytes=512
         T< R2t itt=2 ttt=2 offset=0 len=512
         I> DataOut itt=2 ttt=2 data_sn=0 offset=0 data=512 F bad_digest
         T< Reject reason=DataDigestError
         D< Abandon itt=2
         D> gone itt=2
         T< ScsiResponse itt=2 status=0x02 sense=b/47/05",
    );
}

#[test]
fn dig_13_discovery_sessions_use_what_they_negotiate() {
    let mut peer = Peer::new();
    peer.play(
        "I> LoginRequest T csg=1 nsg=3 | @initiator SessionType=Discovery HeaderDigest=CRC32C DataDigest=CRC32C
         T< LoginResponse status=Success T
         I> TextRequest itt=1 F | SendTargets=All
         D< SendTargets All
         D> targets iqn.2025-01.org.example:a=192.0.2.1:3260,1
         T< TextResponse itt=1 F | TargetName=iqn.2025-01.org.example:a TargetAddress=192.0.2.1:3260,1
         I> TextRequest itt=2 F bad_digest | SendTargets=All
         T< Reject reason=DataDigestError",
    );
    assert_eq!(peer.params.digests, DigestScope { header: true, data: true });
}
