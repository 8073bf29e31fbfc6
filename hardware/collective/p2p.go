package collective

import (
	"math"

	"github.com/perfplan/perfplan/internal/units"
)

// exchange is how Send/Recv and all-to-all run: rounds of messages between
// pairs, which the tuner does not see. Sources: src/enqueue.cc (addP2pToPlan)
// and src/graph/paths.cc (ncclTopoComputeP2pChannels).
type exchange struct {
	op       Op
	view     view
	setup    float64 // us before the first byte
	inside   float64 // GB/s to the members of the node
	across   float64 // GB/s to those of other nodes
	received float64 // GB/s of the rows that a member receives, its own included
	spread   float64 // members of a node that a row goes to once it is there
	ramp     float64
	channels float64 // of all messages together
	perPeer  float64 // of one message
	channel  float64 // GB/s of one of a message
}

// exchangeOf prices the messages of an operation on a group.
func (f *Fabric) exchangeOf(op Op, g Group) *exchange {
	c, r, gen := &fitted().P2P, releaseOf(Version{}), generationOf(f.Capability)
	v := f.view(r, g)
	us := func(t units.Seconds) float64 { return float64(t) * 1e6 }
	x := &exchange{op: op, view: v, ramp: c.MessageRamp, setup: us(c.Setup), inside: max(min(v.total, f.host(v)), slowest), received: math.Inf(1), spread: max(g.Spread, 1)}
	small := 1.0 // what small groups lose
	if gen <= ampere && v.nvlink {
		small -= c.PerRank / v.n
	}
	if v.nodes > 1 {
		x.setup += us(c.Network + f.hopLatency())
		x.across = max(f.wire(g)/v.fewest, slowest) // a rank's share of the adapters
	}
	switch op {
	case AllToAll:
		x.ramp = c.ExchangeRamp
		x.setup += us(c.RemotePeer) * (v.n - v.fewest)
		if gen <= ampere {
			x.setup += us(c.Peer) * (v.perNode - 1)
		}
		x.inside *= c.Exchange * small
		x.across /= 1 + c.Congestion*math.Log2(v.nodes)
	case TokenExchange, DeepEPExchange:
		k := &c.HybridEP
		if op == DeepEPExchange {
			k = &c.DeepEP
		}
		x.ramp = c.ExchangeRamp
		x.setup += us(k.Setup - c.Setup)
		x.inside *= k.Inside / (1 + k.Wider*max(math.Log2(v.perNode/8), 0))
		x.across *= k.Across * f.transport().sent()
		x.received = k.most(gen, v.nodes > 1)
	default:
		x.inside *= c.Links
	}

	ring := ringGraph(r, gen, v)
	x.channels = upToPowerOf2(min(2*ring.channels, float64(r.MaxChannels)))
	x.perPeer = 2
	if v.nodes == 1 && v.nvlink {
		x.perPeer = upToPowerOf2(2 * math.Floor(v.total/r.PerLink.of(gen)[0]))
	}
	x.perPeer = min(x.perPeer, x.channels)
	at := x.channels // all of them together; NCCL halves later across nodes (ncclTopoGetNchannels, src/graph/paths.cc)
	if v.nodes > 1 {
		at *= 4
	}
	for x.perPeer*v.n > at && x.perPeer > 1 {
		x.perPeer /= 2
	}
	x.channel = c.Channel.Inside * r.PerLink.of(gen)[0]
	if v.nodes > 1 {
		_, rate := f.adapters(g)
		x.channel = max(c.Channel.Across*float64(rate)/1e9, slowest)
	}
	return x
}

func upToPowerOf2(x float64) float64 { return math.Exp2(math.Ceil(math.Log2(max(x, 1)))) }

// time is the time in us of a call. Messages inside the node and to other nodes
// move at once, so the slower of the two decides.
func (x *exchange) time(bytes float64) float64 {
	var move float64 // us
	switch v := x.view; {
	case x.op.ofTokens() && v.nodes > 1: // each row once to a node, which hands it on over its links
		move = max(bytes*(v.nodes-1)/v.nodes/x.across, bytes*x.spread*max(1/x.received, (v.perNode-1)/v.perNode/x.inside)) / 1e3
	case x.op == AllToAll || x.op.ofTokens():
		move = max(bytes*(v.perNode-1)/v.n/x.inside, bytes/x.received) / 1e3
		if v.nodes > 1 {
			move = max(move, bytes*(v.n-v.fewest)/v.n/x.across/1e3)
		}
	case v.nodes > 1:
		move = bytes / min(x.across, x.perPeer*x.channel) / 1e3
	default:
		move = bytes / min(x.inside, x.parts(bytes)*x.channel) / 1e3
	}
	return pipeline(x.setup, move, x.ramp)
}

// parts is how many channels one message inside a node is cut over: those of a peer, and
// twice as many while each has more than mostPart. Source: maxPartSize, src/enqueue.cc.
func (x *exchange) parts(bytes float64) float64 {
	n := x.perPeer
	for bytes/n > mostPart && n < x.channels {
		n *= 2
	}
	return n
}

// mostPart is the most bytes of a message that NCCL leaves to one channel while it has others.
const mostPart = 32 * 512 << 10

// protocol is LL for small messages. Source: NCCL_P2P_LL_THRESHOLD, 16 KiB a
// channel, src/enqueue.cc.
func (x *exchange) protocol(bytes float64) Protocol {
	if x.op == AllToAll || x.op.ofTokens() {
		bytes /= x.view.n
	}
	if bytes <= 16*1024*x.perPeer {
		return LL
	}
	return Simple
}

// ctas is how many thread blocks the call takes.
func (x *exchange) ctas(bytes float64) int {
	switch {
	case x.op == AllToAll:
		return int(min(x.channels, x.perPeer*x.view.n))
	case x.op == SendRecv && x.view.nodes == 1:
		return int(x.parts(bytes))
	}
	return int(x.perPeer)
}
