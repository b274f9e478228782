// SPDX-License-Identifier: Apache-2.0 OR MIT
// Connections and their negotiation (flow.rs, method.rs).
#pragma once

#include "segment.h"

static __always_inline void key_of(const struct segment *s, int out, struct key *key)
{
	__builtin_memcpy(key->local, out ? s->source : s->destination, 16);
	__builtin_memcpy(key->remote, out ? s->destination : s->source, 16);
	key->local_port = out ? s->source_port : s->destination_port;
	key->remote_port = out ? s->destination_port : s->source_port;
}

static __always_inline struct flow *find(const struct key *key)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);

	return flow ? flow : bpf_map_lookup_elem(&opening, key);
}

/* A connection opens: from now on it gives way to nobody. */
static __always_inline void stands(const struct key *key)
{
	struct flow *flow = bpf_map_lookup_elem(&opening, key);

	if (!flow)
		return;
	struct flow copy = *flow;

	/* Where the table is full it stays among those that may have to give way. */
	if (!bpf_map_update_elem(&flows, key, &copy, BPF_ANY)) {
		bpf_map_delete_elem(&opening, key);
	} else if (!flow->refused) {
		flow->refused = 1;
		total(REFUSED);
	}
}

/* A connection that was turned away: from now on it gives way to others. */
static __noinline int steps_back(const struct key *key)
{
	struct flow *flow = key ? bpf_map_lookup_elem(&flows, key) : 0;

	if (!flow)
		return 0;
	struct flow copy = *flow;

	bpf_map_update_elem(&opening, key, &copy, BPF_ANY);
	bpf_map_delete_elem(&flows, key);
	return 0;
}

static __always_inline u8 rank(u8 thesis)
{
	return thesis == DATA ? 2 : thesis == WHOLE ? 1 : 0;
}

/* The join of both offers, or 0 (method.rs). */
static __always_inline u8 join(u8 thesis, u8 placed)
{
	if (placed && offer_placed)
		return PLACED;
	if (!thesis || !offer_thesis)
		return 0;
	return rank(thesis) >= rank(offer_thesis) ? thesis : offer_thesis;
}

/* The connection has no CRC; where one is required, it is not let through. */
static __always_inline void plain(struct flow *flow, u8 why)
{
	if (required) {
		if (flow->state != TURNED_AWAY)
			total(TURNED_AWAY_WHY + why);
		flow->state = TURNED_AWAY;
		flow->why = why;
		return;
	}
	flow->state = PLAIN;
	flow->why = why;
}

/* Begins again for another initial sequence number of ours. */
static __always_inline void begin(struct flow *flow, u32 isn)
{
	if (flow->known & OURS && flow->our_isn == isn)
		return;
	u32 unanswered = flow->unanswered_isn;
	u8 thesis = flow->unanswered_thesis, placed = flow->unanswered_placed, has = flow->has_unanswered;

	__builtin_memset(flow, 0, sizeof(*flow));
	flow->unanswered_isn = unanswered;
	flow->unanswered_thesis = thesis;
	flow->unanswered_placed = placed;
	flow->has_unanswered = has;
	flow->our_isn = isn;
	flow->known = OURS;
}

/* Our SYN, or our SYN-ACK. What it asks for, sockops has written. */
static __always_inline void our_syn(const struct segment *s, const struct found *f, const struct key *key)
{
	struct flow fresh = {}, *flow;
	u8 asks = f->thesis || f->placed;

	/* An earlier connection between the same ports. */
	flow = bpf_map_lookup_elem(&flows, key);
	if (flow && flow->our_isn != s->seq) {
		fresh = *flow;
		bpf_map_update_elem(&opening, key, &fresh, BPF_ANY);
		bpf_map_delete_elem(&flows, key);
	}
	flow = find(key);
	if (!flow) {
		if (!asks)
			return;
		bpf_map_update_elem(&opening, key, &fresh, BPF_ANY);
		flow = bpf_map_lookup_elem(&opening, key);
		if (!flow)
			return;
	}
	begin(flow, s->seq);
	if (!(s->flags & ACK)) {
		flow->syns += flow->syns < 255;
		if (!asks)
			plain(flow, flow->syns > REQUESTS_MAX && !required ? REQUESTS_LOST : NO_ROOM);
		return;
	}
	if (flow->has_unanswered) {
		flow->has_unanswered = 0;
		flow->their_isn = flow->unanswered_isn;
		flow->their_thesis = flow->unanswered_thesis;
		flow->their_placed = flow->unanswered_placed;
		flow->known |= THEIRS;
	}
	if (!(flow->known & THEIRS))
		return;
	if (!flow->their_thesis && !flow->their_placed)
		return plain(flow, PEER_SILENT);
	u8 method = join(flow->their_thesis, flow->their_placed);

	if (!method)
		return plain(flow, NO_COMMON_METHOD);
	flow->syn_acks += flow->syn_acks < 255;
	if (!asks)
		return plain(flow, flow->syn_acks > REQUESTS_MAX && !required ? REQUESTS_LOST : NO_ROOM);
	flow->state = PROTECTED;
	flow->method = method;
}

static __always_inline void their_syn(const struct segment *s, const struct found *f, const struct key *key)
{
	struct flow fresh = {}, *flow = find(key);

	if (!flow) {
		/* Who asks for nothing needs no place, except to be turned away. */
		if (!required && !f->thesis && !f->placed)
			return;
		bpf_map_update_elem(&opening, key, &fresh, BPF_ANY);
		flow = bpf_map_lookup_elem(&opening, key);
		if (!flow)
			return;
	}
	flow->unanswered_isn = s->seq;
	flow->unanswered_thesis = f->thesis;
	flow->unanswered_placed = f->placed;
	flow->has_unanswered = 1;
}

static __always_inline void their_syn_ack(const struct segment *s, const struct found *f, const struct key *key)
{
	struct flow *flow = find(key);

	/* Data in our SYN (TCP Fast Open) may be acknowledged as well; a SYN-ACK of 64 KiB and more behind is none of ours. */
	if (!flow || !(flow->known & OURS) || (u32)(s->ack - flow->our_isn) - 1 > 0xffff)
		return;
	/* What was decided stays. */
	if (flow->known & CONFIRMED || flow->state >= PLAIN)
		return;
	flow->their_isn = s->seq;
	flow->their_thesis = f->thesis;
	flow->their_placed = f->placed;
	flow->known |= THEIRS;
	if (!f->thesis && !f->placed) {
		plain(flow, PEER_SILENT);
	} else {
		u8 method = join(f->thesis, f->placed);

		if (!method) {
			plain(flow, NO_COMMON_METHOD);
		} else {
			flow->state = PROTECTED;
			flow->method = method;
			flow->known |= CONFIRMED;
		}
	}
	stands(key);
}
