# CHAP: the right secret logs in, a wrong one and none at all are refused; with --chap-in also mutual.
# RIG_CHAP_ALGS: further algorithms to log in with, such as "SHA1 SHA256 SHA3-256".
if [ -z "$RIG_CHAP" ]; then
  skip chap "no --chap given"
  finish
  return
fi
USER=${RIG_CHAP%%:*} SECRET=${RIG_CHAP#*:} USER_IN= SECRET_IN=
if [ -n "$RIG_CHAP_IN" ]; then
  USER_IN=${RIG_CHAP_IN%%:*} SECRET_IN=${RIG_CHAP_IN#*:}
fi
IQN=${RIG_CHAP_IQN:-$IQN}

# auth METHOD USER SECRET [USER_IN SECRET_IN]: the defaults from now on, and a fresh record
auth() {
  setconf node.session.auth.authmethod "$1" \
    node.session.auth.username "$2" node.session.auth.password "$3"
  if [ -n "$4" ]; then
    setconf node.session.auth.username_in "$4" node.session.auth.password_in "$5"
  fi
  node_new
}

right_secret() { # right_secret [ALGORITHM]
  iscsi_up && digests "$RIG_DIGEST" && setconf node.session.auth.chap_algs "${1:-MD5}" || return 1
  auth CHAP "$USER" "$SECRET" "$USER_IN" "$SECRET_IN" && login && want_default && logout
}
wrong_secret() { auth CHAP "$USER" wrong-secret-000 "$USER_IN" "$SECRET_IN" && ! login; }
no_secret() { auth None x x && ! login; }
wrong_answer() { auth CHAP "$USER" "$SECRET" "$USER_IN" wrong-secret-111 && ! login; }

check chap-good right_secret
for algorithm in $RIG_CHAP_ALGS; do
  check "chap-$algorithm" right_secret "$algorithm"
done
check chap-wrong-secret wrong_secret
check chap-none-refused no_secret
[ -n "$USER_IN" ] && check chap-mutual-wrong wrong_answer
setconf node.session.auth.authmethod None
logout >/dev/null 2>&1
finish
