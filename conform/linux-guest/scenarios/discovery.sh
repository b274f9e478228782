# SendTargets lists the target.
discover() {
  local found=/tmp/discovered status
  iscsi_up || return 1
  iscsiadm -m discovery -t sendtargets -p "$PORTAL" >$found
  status=$?
  cat $found
  DETAIL="$(wc -l <$found) target line(s)"
  [ $status = 0 ] && grep -q "$IQN" $found
}

check discovery discover
finish
