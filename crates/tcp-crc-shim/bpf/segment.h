// SPDX-License-Identifier: Apache-2.0 OR MIT
// A packet that carries one whole TCP segment (packet.rs), its options (options.rs), and what a CRC covers (coverage.rs).
#pragma once

#include "state.h"

/*
 * Adds the table's entry for a byte that `zeros` bytes follow. The compiler is not to see the sums: it would keep an address for every
 * `zeros`, and entries that wait to be added, in memory.
 */
static __always_inline u64 with_byte(u64 crc, const u8 *tables, u64 byte, u32 zeros)
{
	u64 slot = byte * 4;

	asm volatile("%0 += %1" : "+r"(slot) : "r"(tables));
	crc ^= *(const u32 *)(slot + 1024 * zeros);
	asm volatile("" : "+r"(crc));
	return crc;
}

/*
 * Sixteen bytes. Twelve of them do not wait for the state, and come first. Byte by byte takes the fewest instructions, but for the four that
 * the state is added to.
 */
static __always_inline u64 crc_of_16(const u8 *tables, u64 crc, const volatile u8 *bytes)
{
	u64 next = with_byte(0, tables, bytes[4], 11);

	next = with_byte(next, tables, bytes[5], 10);
	next = with_byte(next, tables, bytes[6], 9);
	next = with_byte(next, tables, bytes[7], 8);
	next = with_byte(next, tables, bytes[8], 7);
	next = with_byte(next, tables, bytes[9], 6);
	next = with_byte(next, tables, bytes[10], 5);
	next = with_byte(next, tables, bytes[11], 4);
	next = with_byte(next, tables, bytes[12], 3);
	next = with_byte(next, tables, bytes[13], 2);
	next = with_byte(next, tables, bytes[14], 1);
	next = with_byte(next, tables, bytes[15], 0);
	u32 word = *(const volatile u32 *)bytes ^ crc;

	next = with_byte(next, tables, word & 255, 15);
	next = with_byte(next, tables, word >> 8 & 255, 14);
	next = with_byte(next, tables, word >> 16 & 255, 13);
	return with_byte(next, tables, word >> 24, 12);
}

static __always_inline u32 crc_of(u32 crc, const u8 *bytes, u32 length, u32 max)
{
	const u8 *tables = (const u8 *)table;
	u32 at = 0;

	asm volatile("" : "+r"(tables));
	/* `at` is a constant in every turn: the verifier walks them all. */
#pragma clang loop unroll(disable)
	for (; at + 16 <= max; at += 16) {
		if (at + 16 > length)
			break;
		crc = crc_of_16(tables, crc, bytes + at);
	}
	at = length & ~15u;
	if (at > max - 16)
		return crc;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < 15; i++) {
		if (i >= (length & 15))
			break;
		crc = table[0][(crc ^ bytes[at + i]) & 255] ^ crc >> 8;
	}
	return crc;
}

/* By themselves, so that the verifier walks each of them once. */
__noinline u32 crc_of_head(u32 crc, u32 length)
{
	struct scratch *s = scratch();

	if (!s || length > HEAD_MAX - 16)
		return crc;
	return crc_of(crc, s->head, length, HEAD_MAX);
}

__noinline u32 crc_of_piece(u32 crc, u32 length)
{
	struct scratch *s = scratch();

	if (!s || length > PIECE_MAX)
		return crc;
	return crc_of(crc, s->piece, length, PIECE_MAX + 16);
}

struct segment {
	u32 tcp_at;		/* from the beginning of the packet with its link header */
	u32 header_bytes;
	u32 data_bytes;
	u32 option_bytes;
	u32 seq;
	u32 ack;
	u8 v4;
	u8 flags;
	u16 reserved;
	u32 source[4];
	u32 destination[4];
	u16 source_port;
	u16 destination_port;
};

enum verdict { SUITABLE, IS_NOT_TCP, IS_FRAGMENT, IS_MALFORMED };

static __always_inline int read_v4(struct __sk_buff *skb, struct segment *s, u32 *tcp_bytes)
{
	u8 ip[20];

	if (bpf_skb_load_bytes(skb, ETH_BYTES, ip, sizeof(ip)))
		return IS_MALFORMED;
	u32 header = (ip[0] & 15) * 4, all = ip[2] << 8 | ip[3];

	if (ip[0] >> 4 != 4 || header < 20 || all < header)
		return IS_MALFORMED;
	if (ip[9] != TCP_PROTOCOL)
		return IS_NOT_TCP;
	if ((ip[6] << 8 | ip[7]) & 0x3fff)
		return IS_FRAGMENT;
	if (ETH_BYTES + all > skb->len)
		return IS_MALFORMED;
	s->v4 = 1;
	s->source[2] = s->destination[2] = bpf_htonl(0xffff);
	__builtin_memcpy(&s->source[3], ip + 12, 4);
	__builtin_memcpy(&s->destination[3], ip + 16, 4);
	s->tcp_at = ETH_BYTES + header;
	*tcp_bytes = all - header;
	return SUITABLE;
}

static __always_inline int read_v6(struct __sk_buff *skb, struct segment *s, u32 *tcp_bytes)
{
	u8 ip[40];

	if (bpf_skb_load_bytes(skb, ETH_BYTES, ip, sizeof(ip)))
		return IS_MALFORMED;
	u32 payload = ip[4] << 8 | ip[5], at = 0;
	u8 next = ip[6];

	/* A jumbogram has no length here. */
	if (ip[0] >> 4 != 6 || (!payload && !next) || ETH_BYTES + 40 + payload > skb->len)
		return IS_MALFORMED;
	__builtin_memcpy(s->source, ip + 8, 16);
	__builtin_memcpy(s->destination, ip + 24, 16);
#pragma clang loop unroll(disable)
	for (int i = 0; i < EXTENSION_HEADERS_MAX; i++) {
		u8 head[4];

		if (next == TCP_PROTOCOL)
			break;
		if (next == 44)
			return IS_FRAGMENT;
		/* Encrypted, authenticated, mobile: not walked. */
		if (next == 50 || next == 51 || next == 135 || next == 139 || next == 140)
			return IS_MALFORMED;
		if (next != 0 && next != 43 && next != 60)
			return IS_NOT_TCP;
		if (at + 4 > payload || bpf_skb_load_bytes(skb, ETH_BYTES + 40 + at, head, sizeof(head)))
			return IS_MALFORMED;
		/* With segments left the final destination is another one than the header's. */
		if (next == 43 && head[3])
			return IS_MALFORMED;
		at += 8 + head[1] * 8;
		next = head[0];
		if (at > payload)
			return IS_MALFORMED;
	}
	if (next != TCP_PROTOCOL)
		return IS_MALFORMED;
	s->tcp_at = ETH_BYTES + 40 + at;
	*tcp_bytes = payload - at;
	return SUITABLE;
}

static __always_inline int read_segment(struct __sk_buff *skb, struct segment *s)
{
	u8 tcp[TCP_BYTES];
	u32 tcp_bytes = 0;
	int verdict = IS_NOT_TCP;

	__builtin_memset(s, 0, sizeof(*s));
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4))
		verdict = read_v4(skb, s, &tcp_bytes);
	else if (skb->protocol == bpf_htons(ETHERTYPE_IPV6))
		verdict = read_v6(skb, s, &tcp_bytes);
	if (verdict != SUITABLE)
		return verdict;
	if (tcp_bytes < TCP_BYTES || bpf_skb_load_bytes(skb, s->tcp_at, tcp, sizeof(tcp)))
		return IS_MALFORMED;
	s->header_bytes = (tcp[12] >> 4) * 4;
	if (s->header_bytes < TCP_BYTES || s->header_bytes > tcp_bytes)
		return IS_MALFORMED;
	s->option_bytes = s->header_bytes - TCP_BYTES;
	s->data_bytes = tcp_bytes - s->header_bytes;
	__builtin_memcpy(&s->source_port, tcp, 2);
	__builtin_memcpy(&s->destination_port, tcp + 2, 2);
	s->seq = (u32)tcp[4] << 24 | tcp[5] << 16 | tcp[6] << 8 | tcp[7];
	s->ack = (u32)tcp[8] << 24 | tcp[9] << 16 | tcp[10] << 8 | tcp[11];
	s->flags = tcp[FLAGS_AT];
	return SUITABLE;
}

/* What stands in the options that is ours, or matters to us. Places are from the first option. */
struct found {
	u32 data_at;		/* of the CRC, not of its option */
	u32 data_options;
	u32 data_bytes;		/* of the CRC */
	u32 packed_bytes;	/* without padding */
	u32 sack_at;
	u32 sack_bytes;
	u8 thesis;
	u8 placed;
	u8 asks;
};

static __always_inline int is_ours(const u8 *options, u32 at, u32 bytes, u8 kind, u8 exid)
{
	if (!experimental)
		return options[at & 63] == kind;
	return options[at & 63] == KIND_EXPERIMENT && bytes >= 4 && options[(at + 2) & 63] == 'C' &&
	       options[(at + 3) & 63] == exid;
}

/* Reads the options that `scratch` has; not zero when they cannot be read. By itself, so that the verifier walks it once. */
static __noinline int read_options(struct found *f, u32 end)
{
	struct scratch *scr = scratch();
	const u32 head = experimental ? 4 : 2;
	u32 at = 0;

	if (!f || !scr)
		return 1;
	const u8 *o = scr->options;

#pragma clang loop unroll(disable)
	for (int i = 0; i < OPTION_BYTES_MAX; i++) {
		at &= 63;
		if (at >= end)
			break;
		u8 kind = o[at];

		if (kind == KIND_END)
			break;
		if (kind == KIND_NOP) {
			at += 1;
			continue;
		}
		if (at + 1 >= end)
			return 1;
		u32 bytes = o[(at + 1) & 63];

		if (bytes < 2 || at + bytes > end)
			return 1;
		if (is_ours(o, at, bytes, KIND_DATA, 'D')) {
			f->data_options += 1;
			if (f->data_options == 1) {
				f->data_at = at + head;
				f->data_bytes = bytes - head;
			}
		} else if (is_ours(o, at, bytes, KIND_REQUEST, 'Q') && bytes == head + 1) {
			u8 value = o[(at + head) & 63];

			if (value == PLACED)
				f->placed = 1;
			else if (value >= 3 && value <= WHOLE && !f->thesis)
				f->thesis = value;
		}
		if (kind == KIND_SACK) {
			f->sack_at = at;
			f->sack_bytes = bytes;
		}
		f->packed_bytes += bytes;
		at += bytes;
	}
	return 0;
}

static __always_inline int find_options(struct __sk_buff *skb, const struct segment *s, struct found *f)
{
	struct scratch *scr = scratch();
	u32 bytes = s->option_bytes;

	__builtin_memset(f, 0, sizeof(*f));
	if (!scr)
		return 1;
	if (!bytes)
		return 0;
	if (bytes > OPTION_BYTES_MAX || bpf_skb_load_bytes(skb, s->tcp_at + TCP_BYTES, scr->options, bytes))
		return 1;
	return read_options(f, bytes);
}

/* Where the CRC begins that covers more than data: its head in `scratch`, and the head's length. */
static __always_inline u32 write_head(struct __sk_buff *skb, const struct segment *s, u8 method, u32 isn, u32 crc_at)
{
	struct scratch *scr = scratch();
	u32 tcp_bytes = s->header_bytes + s->data_bytes, length = 0;

	if (!scr)
		return 0;
	u8 *head = scr->head;

	if (method == PLACED) {
		*(u32 *)head = bpf_htonl(s->seq - isn);
		*(u32 *)(head + 4) = bpf_htonl(s->data_bytes);
		return 8;
	}
	if (method != WHOLE)
		return 0;
	if (s->v4) {
		__builtin_memcpy(head, &s->source[3], 4);
		__builtin_memcpy(head + 4, &s->destination[3], 4);
		head[8] = 0;
		head[9] = TCP_PROTOCOL;
		*(u16 *)(head + 10) = bpf_htons(tcp_bytes);
		length = 12;
	} else {
		__builtin_memcpy(head, s->source, 16);
		__builtin_memcpy(head + 16, s->destination, 16);
		*(u32 *)(head + 32) = bpf_htonl(tcp_bytes);
		*(u32 *)(head + 36) = bpf_htonl(TCP_PROTOCOL);
		length = 40;
	}
	u32 header = s->header_bytes;

	if (header < TCP_BYTES || header > TCP_BYTES + OPTION_BYTES_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, s->tcp_at, head + length, header))
		return 0;
	*(u16 *)(head + length + CHECKSUM_AT) = 0;
	crc_at = (crc_at + length + TCP_BYTES) & 127;
	if (crc_at <= HEAD_MAX - 4) {
		head[crc_at] = 0;
		head[crc_at + 1] = 0;
		head[crc_at + 2] = 0;
		head[crc_at + 3] = 0;
	}
	return length + header;
}

#define UNREADABLE (1ull << 32)

/* Goes on with `crc` over `left` bytes from `from` on; `UNREADABLE` when the packet does not have them. */
__noinline u64 crc_of_data(struct __sk_buff *skb, u32 from, u32 left, u32 crc)
{
	struct scratch *scr = scratch();

	if (!scr)
		return UNREADABLE;
#pragma clang loop unroll(disable)
	for (int i = 0; i < PIECES_MAX; i++) {
		u32 piece = left > PIECE_MAX ? PIECE_MAX : left;

		/* What clang knows of a length, the verifier may not. */
		asm volatile("" : "+r"(piece));
		if (piece < 1)
			return crc;
		if (piece > PIECE_MAX || bpf_skb_load_bytes(skb, from, scr->piece, piece))
			return UNREADABLE;
		crc = crc_of_piece(crc, piece);
		if (left <= PIECE_MAX)
			return crc;
		from += PIECE_MAX;
		left -= PIECE_MAX;
	}
	return UNREADABLE;
}

static __always_inline int crc_of_segment(struct __sk_buff *skb, const struct segment *s, u8 method, u32 isn,
					  u32 crc_at, u32 *out)
{
	u32 crc = ~0u, head = write_head(skb, s, method, isn, crc_at);

	/* Of a segment without data value 4 covers nothing. */
	if (method != DATA) {
		if (!head)
			return 1;
		crc = crc_of_head(crc, head);
	}
	u64 summed = crc_of_data(skb, s->tcp_at + s->header_bytes, s->data_bytes, crc);

	*out = ~(u32)summed;
	return summed == UNREADABLE;
}
