# Protection information: a unit of type 1 (a scratch one, of 512-byte blocks) as a kernel sees it that sends no tuples, and tuples
# from user space through that kernel.
BLOCK3="00 00 00 00 00 00 00 03 00 00 00 01 00 00"

# 512 bytes FFh, whose guard is E6A1h, and the tuple that $1 says.
block() {
  head -c 512 /dev/zero | tr '\0' '\377'
  printf "$1"
}

send() {
  block "$1" >/tmp/block && sg_raw -s 520 -i /tmp/block "$DISK" 8a 20 $BLOCK3 2>&1 | tee /dev/stderr
}

type_1() {
  sg_readcap --long "$DISK" | tee /dev/stderr | grep -q "type 1 protection"
}

tuples_come_back() {
  block '\346\241\001\002\000\000\000\003' >/tmp/sent &&
    send '\346\241\001\002\000\000\000\003' | grep -q Good &&
    sg_raw -r 520 -o /tmp/back "$DISK" 88 20 $BLOCK3 && cmp /tmp/sent /tmp/back
}

bad_guard() {
  send '\346\240\001\002\000\000\000\003' | grep -q "guard check failed"
}

bad_reference_tag() {
  send '\346\241\001\002\000\000\000\004' | grep -q "reference tag check failed"
}

# The kernel's own reads and writes carry none; the unit makes and checks them.
kernel_reads_it() {
  head -c 512 /tmp/sent >/tmp/data &&
    dd if="$DISK" of=/tmp/plain bs=512 skip=3 count=1 iflag=direct && cmp /tmp/data /tmp/plain &&
    dd if=/tmp/data of="$DISK" bs=512 seek=3 count=1 oflag=direct &&
    sg_raw -r 520 -o /tmp/back "$DISK" 88 20 $BLOCK3 &&
    block '\346\241\000\000\000\000\000\003' | cmp - /tmp/back
}

check pi-connect connect || {
  finish
  return
}
check pi-type-1 type_1
check pi-tuples tuples_come_back
check pi-bad-guard bad_guard
check pi-bad-reference-tag bad_reference_tag
check pi-kernel kernel_reads_it
check pi-verify sg_verify --16 --vrprotect=1 --count=8 "$DISK"
logout >/dev/null 2>&1
finish
