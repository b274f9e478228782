# Login and logout with each combination of digests, checked against what the kernel negotiated.
round() { # round HEADER DATA WANT_HEADER WANT_DATA
  iscsi_up && digests "$1" "$2" && node_new && login || return 1
  DETAIL="MaxRecvDSL=$(param max_recv_dlength) MaxXmitDSL=$(param max_xmit_dlength)"
  DETAIL="$DETAIL FirstBurst=$(param first_burst_len) MaxBurst=$(param max_burst_len)"
  DETAIL="$DETAIL R2T=$(param initial_r2t) Imm=$(param immediate_data) ERL=$(param erl)"
  want_digests "$3" "$4" &&
    dd if="$DISK" of=/dev/null bs=64k count=32 iflag=direct &&
    logout
}

for combination in "CRC32C CRC32C 1 1" "None None 0 0" "CRC32C None 1 0" "None CRC32C 0 1"; do
  set -- $combination
  check "login-h$1-d$2" round "$@" || logout >/dev/null 2>&1
done
finish
