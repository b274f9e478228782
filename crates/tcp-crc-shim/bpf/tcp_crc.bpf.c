// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// CRC32C in TCP inside the kernel's own TCP: the rules of the crate tcp-crc (flow.rs, rewrite.rs, coverage.rs) once more, in C.
//
//   sockops   makes the kernel's TCP leave room: the request in SYN and SYN-ACK, an empty data option in every other segment
//   egress    (tc) follows the connection, and fills the CRC in
//   ingress   (tc) follows the connection, and judges each segment before TCP sees it
//
// What differs from the shim on TUN devices, and why:
// - Value 3 is not asked for: it puts half of the CRC where the kernel, or the NIC, makes TCP's sum.
// - Options stay where the kernel puts them, and are not taken out: it ignores a kind that it does not know.
// - TCP's sum is left to the kernel, which verifies it behind this program and counts TcpInCsumErrors.
// - A connection is forgotten when its socket closes. What the kernel says for a socket in TIME-WAIT is bare.
//
// Nothing here trusts a packet: every length is checked against the packet's own before it is used.

#include "flow.h"

/* Which source this is of: a test compares. */
char source_mark[] SEC("source") = "CRC32C of the source: " SOURCE_CRC32C;

static __always_inline u32 option_bytes(void)
{
	return experimental ? 8 : 6;
}

/* A segment with data whose SACK blocks leave no room: the last block gives way, in its place. Returns where the CRC stands. */
static __always_inline u32 take_sack_block(struct __sk_buff *skb, const struct segment *s, const struct found *f)
{
	u32 at = s->tcp_at + TCP_BYTES + f->sack_at, end = s->option_bytes;
	u8 old[8], new[8] = { KIND_DATA, 6, 0, 0, 0, 0, KIND_NOP, KIND_NOP };
	u8 old_head[2], new_head[2];
	u32 crc_at = end - 6;

	if (f->sack_bytes < 2 + 2 * SACK_BLOCK_BYTES || f->sack_at + f->sack_bytes != end || (f->sack_at & 1))
		return 0;
	if (experimental) {
		new[0] = KIND_EXPERIMENT;
		new[1] = 8;
		new[2] = 'C';
		new[3] = 'D';
		new[6] = new[7] = 0;
		crc_at = end - 4;
	}
	u32 block_at = s->tcp_at + TCP_BYTES + end - SACK_BLOCK_BYTES, sum_at = s->tcp_at + CHECKSUM_AT;

	if (bpf_skb_load_bytes(skb, block_at, old, 8) || bpf_skb_load_bytes(skb, at, old_head, 2))
		return 0;
	new_head[0] = KIND_SACK;
	new_head[1] = f->sack_bytes - SACK_BLOCK_BYTES;
	__s64 diff = bpf_csum_diff((__be32 *)old, 8, (__be32 *)new, 8, 0);
	u16 old_word, new_word;

	__builtin_memcpy(&old_word, old_head, 2);
	__builtin_memcpy(&new_word, new_head, 2);
	if (diff < 0 || bpf_l4_csum_replace(skb, sum_at, 0, diff, 0) ||
	    bpf_l4_csum_replace(skb, sum_at, old_word, new_word, 2) ||
	    bpf_skb_store_bytes(skb, block_at, new, 8, 0) || bpf_skb_store_bytes(skb, at, new_head, 2, 0))
		return 0;
	return crc_at;
}

static __always_inline int send(struct __sk_buff *skb, const struct segment *s, struct found *f, struct flow *flow)
{
	u32 crc_at = f->data_at, crc;

	if (f->data_options != 1 || f->data_bytes != 4) {
		crc_at = s->data_bytes ? take_sack_block(skb, s, f) : 0;
		if (!crc_at) {
			counted(flow, BARE_SENT);
			return TC_ACT_UNSPEC;
		}
		counted(flow, SACK_BLOCKS_DROPPED);
	}
	/* A NIC or the kernel would cut this later, and put one CRC into every piece. */
	if (skb->gso_segs > 1) {
		total(SUPER);
		return TC_ACT_SHOT;
	}
	if (crc_of_segment(skb, s, flow->method, flow->our_isn, crc_at, &crc))
		return TC_ACT_SHOT;
	__be32 bytes = bpf_htonl(crc), before = 0;
	u32 at = s->tcp_at + TCP_BYTES + crc_at;

	/* The kernel has left zeros there. */
	if (bpf_skb_load_bytes(skb, at, &before, 4) || bpf_skb_store_bytes(skb, at, &bytes, 4, 0) ||
	    bpf_l4_csum_replace(skb, s->tcp_at + CHECKSUM_AT, before, bytes, 4))
		return TC_ACT_SHOT;
	counted(flow, STAMPED);
	return TC_ACT_UNSPEC;
}

/*
 * Makes a segment of another kind of it. As a RST our TCP believes it if it is the one that it waits for, and answers the peer's next one
 * with another. As a SYN-ACK it makes a TCP that has no connection, or is about to open one, reset the peer, and its data is read by none.
 */
static __always_inline int turn_into(struct __sk_buff *skb, const struct segment *s, u8 flags)
{
	u32 at = s->tcp_at + 12;
	u8 old[2], new[2];
	u16 before, after;

	if (bpf_skb_load_bytes(skb, at, old, 2))
		return TC_ACT_SHOT;
	new[0] = old[0];
	new[1] = flags;
	__builtin_memcpy(&before, old, 2);
	__builtin_memcpy(&after, new, 2);
	if (bpf_l4_csum_replace(skb, s->tcp_at + CHECKSUM_AT, before, after, 2) ||
	    bpf_skb_store_bytes(skb, at, new, 2, BPF_F_RECOMPUTE_CSUM))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

/* Our SYN or SYN-ACK, where no connection may be plain: the peer's TCP believes the RST in place of a SYN-ACK. */
static __always_inline int open_required(struct __sk_buff *skb, const struct segment *s, const struct key *key)
{
	struct flow *flow = find(key);

	if (flow && flow->state == (s->flags & ACK ? PROTECTED : OPENING))
		return TC_ACT_UNSPEC;
	if (!flow)
		total(TURNED_AWAY_WHY + NO_ROOM);
	return s->flags & ACK ? turn_into(skb, s, RST | ACK) : TC_ACT_SHOT;
}

SEC("classifier")
int tcp_crc_egress(struct __sk_buff *skb)
{
	struct segment s;
	struct found f;
	struct key key;

	/* What this machine forwards belongs to others. */
	if (!skb->sk || read_segment(skb, &s) != SUITABLE || s.flags & RST || find_options(skb, &s, &f))
		return TC_ACT_UNSPEC;
	key_of(&s, 1, &key);
	if (s.flags & SYN) {
		/* TCP repeats its SYN without data (Fast Open), which has no CRC. */
		if (required && s.data_bytes)
			return TC_ACT_SHOT;
		our_syn(&s, &f, &key);
		return required ? open_required(skb, &s, &key) : TC_ACT_UNSPEC;
	}
	struct flow *flow = find(&key);

	/* Without a connection: what a socket in TIME-WAIT says has no data. */
	if (!flow)
		return required && s.data_bytes ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	if (flow->state != PROTECTED)
		return required ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	return send(skb, &s, &f, flow);
}

/* Whether the sender had room for a CRC in a segment like this. */
static __always_inline int has_room(const struct segment *s, const struct found *f)
{
	u32 needed = f->packed_bytes + option_bytes();

	if (needed <= OPTION_BYTES_MAX)
		return 1;
	return s->data_bytes && f->sack_bytes >= needed - OPTION_BYTES_MAX;
}

static __always_inline int receive_bare(struct __sk_buff *skb, const struct segment *s, const struct found *f,
					struct flow *flow)
{
	if (!has_room(s, f)) {
		counted(flow, BARE_RECEIVED);
		return TC_ACT_UNSPEC;
	}
	if (!(flow->known & CONFIRMED)) {
		plain(flow, ANSWER_STRIPPED);
		return required ? turn_into(skb, s, SYN | ACK) : TC_ACT_UNSPEC;
	}
	counted(flow, MISSING);
	if (!strict || !s->data_bytes)
		return TC_ACT_UNSPEC;
	total(RESETS);
	return turn_into(skb, s, RST | ACK);
}

/* Segments that receive offload has joined had the same options, hence the same CRC: of equal data, under value 4. */
__noinline int all_have(struct __sk_buff *skb, u32 from, u32 left, u32 size, __be32 said)
{
	if (!size)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < JOINED_MAX; i++) {
		u32 piece = left > size ? size : left;
		u64 crc = crc_of_data(skb, from, piece, ~0u);

		if (crc == UNREADABLE || bpf_htonl(~(u32)crc) != said)
			return 0;
		if (left <= size)
			return 1;
		from += size;
		left -= size;
	}
	return 0;
}

static __always_inline int is_right(struct __sk_buff *skb, const struct segment *s, const struct found *f, u8 method,
				    u32 isn, __be32 said)
{
	u32 crc;

	if (skb->gso_segs > 1 && method == DATA)
		return all_have(skb, s->tcp_at + s->header_bytes, s->data_bytes, skb->gso_size, said);
	return !crc_of_segment(skb, s, method, isn, f->data_at, &crc) && bpf_htonl(crc) == said;
}

static __always_inline int receive(struct __sk_buff *skb, const struct segment *s, const struct found *f,
				   struct flow *flow)
{
	u8 method = flow->method, certain = flow->state == PROTECTED;
	__be32 said = 0;

	if (required && !certain) {
		/* Our TCP may wait for a SYN-ACK. */
		if (flow->known & OURS && flow->state != TURNED_AWAY)
			return TC_ACT_SHOT;
		/* A SYN cookie has no request. */
		if (!(flow->known & OURS))
			plain(flow, PEER_SILENT);
		return turn_into(skb, s, SYN | ACK);
	}
	if (!(flow->known & THEIRS))
		return TC_ACT_UNSPEC;
	if (!certain) {
		/* Our request may have arrived though its answers did not. */
		if (flow->state != PLAIN || flow->why != REQUESTS_LOST)
			return TC_ACT_UNSPEC;
		method = join(flow->their_thesis, flow->their_placed);
		if (!method)
			return TC_ACT_UNSPEC;
	}
	if (!f->data_options)
		return certain ? receive_bare(skb, s, f, flow) : TC_ACT_UNSPEC;
	if (f->data_options == 1 && f->data_bytes == 4 &&
	    !bpf_skb_load_bytes(skb, s->tcp_at + TCP_BYTES + f->data_at, &said, 4) &&
	    is_right(skb, s, f, method, flow->their_isn, said)) {
		flow->state = PROTECTED;
		flow->method = method;
		flow->known |= CONFIRMED;
		flow->wrong_in_a_row = 0;
		counted(flow, VERIFIED);
		return TC_ACT_UNSPEC;
	}
	if (!certain)
		return TC_ACT_UNSPEC;
	counted(flow, BAD_CRC);
	/* The sum is not known here; noise on a line is no row of eight. */
	flow->wrong_in_a_row += 1;
	if (flow->wrong_in_a_row == RESEGMENTED_AFTER) {
		flow->wrong_in_a_row = 0;
		counted(flow, RESEGMENTED);
	}
	return TC_ACT_SHOT;
}

SEC("classifier")
int tcp_crc_ingress(struct __sk_buff *skb)
{
	struct segment s;
	struct found f;
	struct key key;
	int verdict = read_segment(skb, &s);

	if (verdict == IS_FRAGMENT) {
		total(strict ? FRAGMENTS_DISCARDED : FRAGMENTS);
		return strict ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	}
	if (verdict == IS_NOT_TCP) {
		total(NOT_TCP);
		return TC_ACT_UNSPEC;
	}
	if (verdict == IS_MALFORMED || find_options(skb, &s, &f)) {
		total(MALFORMED);
		return TC_ACT_UNSPEC;
	}
	if (s.flags & RST)
		return TC_ACT_UNSPEC;
	key_of(&s, 0, &key);
	struct flow *flow;

	if (s.flags & SYN) {
		if (required && s.data_bytes)
			return TC_ACT_SHOT;
		if (!(s.flags & ACK)) {
			their_syn(&s, &f, &key);
			return TC_ACT_UNSPEC;
		}
		their_syn_ack(&s, &f, &key);
		flow = find(&key);
		return flow && flow->state == TURNED_AWAY ? turn_into(skb, &s, RST | ACK) : TC_ACT_UNSPEC;
	}
	flow = bpf_map_lookup_elem(&flows, &key);

	if (!flow) {
		flow = bpf_map_lookup_elem(&opening, &key);
		/* The acknowledgement of our SYN-ACK. */
		if (flow && flow->known & OURS && flow->known & THEIRS) {
			stands(&key);
			flow = find(&key);
		}
	}
	if (!flow) {
		total(UNKNOWN);
		if (!required || !s.data_bytes)
			return TC_ACT_UNSPEC;
		total(TURNED_AWAY_WHY);
		return turn_into(skb, &s, SYN | ACK);
	}
	verdict = receive(skb, &s, &f, flow);
	if (required && flow->state == TURNED_AWAY)
		steps_back(&key);
	return verdict;
}

/* A field of the context, read where it stands: the verifier refuses a pointer into it that was computed. */
#define READ(field) ({ u32 value = field; asm volatile("" : "+r"(value)); value; })

static __always_inline void key_of_socket(struct bpf_sock_ops *ops, struct key *key)
{
	if (ops->family == AF_INET_FAMILY) {
		key->local[0] = key->local[1] = key->remote[0] = key->remote[1] = 0;
		key->local[2] = key->remote[2] = bpf_htonl(0xffff);
		key->local[3] = READ(ops->local_ip4);
		key->remote[3] = READ(ops->remote_ip4);
	} else {
		key->local[0] = READ(ops->local_ip6[0]);
		key->local[1] = READ(ops->local_ip6[1]);
		key->local[2] = READ(ops->local_ip6[2]);
		key->local[3] = READ(ops->local_ip6[3]);
		key->remote[0] = READ(ops->remote_ip6[0]);
		key->remote[1] = READ(ops->remote_ip6[1]);
		key->remote[2] = READ(ops->remote_ip6[2]);
		key->remote[3] = READ(ops->remote_ip6[3]);
	}
	key->local_port = bpf_htons(ops->local_port);
	key->remote_port = ops->remote_port >> 16;
}

static __always_inline int writes_request(struct bpf_sock_ops *ops, const struct key *key)
{
	struct flow *flow = find(key);

	if (!(ops->skb_tcp_flags & ACK))
		return required || !flow || flow->our_isn != ops->snd_una || flow->syns < REQUESTS_MAX;
	/*
	 * Who did not ask is not answered. A SYN cookie goes without as well: its segment has no socket, so egress could not tell it from
	 * one that this machine forwards.
	 */
	if (!flow || ops->args[0] == BPF_WRITE_HDR_TCP_SYNACK_COOKIE)
		return 0;
	if (flow->has_unanswered)
		return join(flow->unanswered_thesis, flow->unanswered_placed) &&
		       (required || flow->syn_acks < REQUESTS_MAX);
	return flow->known & THEIRS && join(flow->their_thesis, flow->their_placed) &&
	       (required || flow->syn_acks < REQUESTS_MAX);
}

static __always_inline u32 request_bytes(void)
{
	return ((offer_thesis != 0) + (offer_placed != 0)) * (experimental ? 5 : 3);
}

static __always_inline void reserve(struct bpf_sock_ops *ops)
{
	struct key key;

	key_of_socket(ops, &key);
	if (ops->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS) {
		if (ops->skb_tcp_flags & RST)
			return;
		if (ops->skb_tcp_flags & SYN) {
			if (writes_request(ops, &key))
				bpf_reserve_hdr_opt(ops, request_bytes(), 0);
			return;
		}
	}
	struct flow *flow = find(&key);

	if (flow && flow->state == PROTECTED)
		bpf_reserve_hdr_opt(ops, option_bytes(), 0);
}

static __always_inline void write_request(struct bpf_sock_ops *ops, u8 value)
{
	u8 historic[3] = { KIND_REQUEST, 3, value };
	u8 experiment[5] = { KIND_EXPERIMENT, 5, 'C', 'Q', value };

	if (experimental)
		bpf_store_hdr_opt(ops, experiment, 5, 0);
	else
		bpf_store_hdr_opt(ops, historic, 3, 0);
}

/* Only what `reserve` has asked for has room; without it nothing is written. */
static __always_inline void write(struct bpf_sock_ops *ops)
{
	u8 historic[6] = { KIND_DATA, 6 };
	u8 experiment[8] = { KIND_EXPERIMENT, 8, 'C', 'D' };

	if (ops->skb_tcp_flags & SYN) {
		if (offer_thesis)
			write_request(ops, offer_thesis);
		if (offer_placed)
			write_request(ops, PLACED);
	} else if (experimental) {
		bpf_store_hdr_opt(ops, experiment, 8, 0);
	} else {
		bpf_store_hdr_opt(ops, historic, 6, 0);
	}
}

SEC("sockops")
int tcp_crc_sockops(struct bpf_sock_ops *ops)
{
	struct key key;

	/* Every program at this cgroup is asked about every socket that one of them has marked. */
	if (netns_cookie && bpf_get_netns_cookie(ops) != netns_cookie)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
						       BPF_SOCK_OPS_STATE_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE) {
			key_of_socket(ops, &key);
			bpf_map_delete_elem(&flows, &key);
		}
		break;
	}
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
