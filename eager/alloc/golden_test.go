package alloc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/sim"
)

// The cases below are written as scripts. A step does one thing:
//
//	x=64M@1     allocate x on stream 1 (@0 may be left out)
//	x!1         record stream 1 on x
//	x~1@0       erase that record, as stream 0 has been made to wait
//	-x          free x
//	done, done1 the device passes everything, everything of stream 1
//	empty       empty the cache
//	on, off     switch expandable segments
//	x=4M#p      allocate x from private pool p, made at first use; #whole:
//	            one that does not split
//	close:p     close it
//
// and then wants values: "alloc=512 res=2M", an allocation's address "x=y"
// (x lies where y was), "oom=20M free=10M" for the segment tried and what the
// device has left, or a layout. Case names start with where the numbers come
// from: T asserted by the tests of PyTorch or torch_npu, D by PyTorch's
// developer log, M computed by an independent model of the rules.
type script struct {
	name     string
	options  Options
	capacity string // empty: unbounded
	steps    []step
}

type step struct{ do, want string }

func (c script) run(t *testing.T) {
	env := newFakeEnv(4)
	a := mustNew(t, c.options, size(t, c.capacity), env)
	blocks := map[string]Block{}
	addrs := map[string]uint64{}
	pools := map[string]PoolID{}
	var sum Costs
	for i, s := range c.steps {
		var oom *OOM
		for do := range strings.FieldsSeq(s.do) {
			oom = nil
			if err := act(t, a, env, do, blocks, addrs, pools); err != nil && !errors.As(err, &oom) {
				t.Fatal(err)
			}
			if k := a.TakeCosts(); true {
				sum.Polls += k.Polls
				sum.Maps += k.Maps
				sum.Unmaps += k.Unmaps
				sum.Waits += k.Waits
				if k.Sync || k.DeviceSync {
					env.passAll()
				}
			}
		}
		verify(t, a)
		if oom != nil && !strings.Contains(s.want, "oom=") {
			t.Fatalf("step %d, %s: %v", i, s.do, oom)
		}
		if s.want == "" {
			continue
		}
		if strings.Contains(s.want, "[") {
			if got := layout(a); got != s.want {
				t.Errorf("step %d, %s: layout %s, want %s", i, s.do, got, s.want)
			}
			continue
		}
		for want := range strings.FieldsSeq(s.want) {
			key, value, _ := strings.Cut(want, "=")
			same := func(x string) bool { return addrs[key] == addrs[x] }
			if other, not := strings.CutPrefix(value, "not:"); addrs[key] != 0 {
				if not == same(strings.TrimPrefix(other, "not:")) {
					t.Errorf("step %d, %s: want address %s", i, s.do, want)
				}
				continue
			}
			if got := figure(t, a, oom, sum, key); got != size(t, value) {
				t.Errorf("step %d, %s: %s = %d, want %s", i, s.do, key, got, value)
			}
		}
	}
}

func act(t *testing.T, a inspectable, env *fakeEnv, do string, blocks map[string]Block, addrs map[string]uint64, pools map[string]PoolID) error {
	if name, ok := strings.CutPrefix(do, "-"); ok {
		a.Free(blocks[name])
		return nil
	}
	if name, what, ok := strings.Cut(do, "="); ok {
		what, private, _ := strings.Cut(what, "#")
		what, on, _ := strings.Cut(what, "@")
		var b Block
		var err error
		if private == "" {
			b, err = a.Malloc(size(t, what), stream(t, on))
		} else {
			b, err = a.(PrivatePools).MallocIn(privatePool(a, private, pools), size(t, what), stream(t, on))
		}
		if err == nil {
			blocks[name] = b
			addrs[name], _ = a.Range(b)
		}
		return err
	}
	if name, s, ok := strings.Cut(do, "!"); ok {
		a.RecordStream(blocks[name], stream(t, s))
		return nil
	}
	if name, s, ok := strings.Cut(do, "~"); ok {
		used, waiting, _ := strings.Cut(s, "@")
		a.EraseStream(blocks[name], stream(t, used), stream(t, waiting))
		return nil
	}
	if name, ok := strings.CutPrefix(do, "close:"); ok {
		a.(PrivatePools).ClosePool(pools[name])
		return nil
	}
	switch do {
	case "done":
		env.passAll()
	case "done1":
		env.pass(1, 1<<20)
	case "empty":
		a.EmptyCache()
	case "on", "off":
		a.(*caching).expandable = do == "on"
	default:
		t.Fatalf("unknown step %q", do)
	}
	return nil
}

// privatePool is the pool of a name.
func privatePool(a inspectable, name string, pools map[string]PoolID) PoolID {
	p, ok := pools[name]
	if !ok {
		p = a.(PrivatePools).NewPool(name == "whole")
		pools[name] = p
	}
	return p
}

func figure(t *testing.T, a Allocator, oom *OOM, costs Costs, key string) sim.Bytes {
	s := a.Stats()
	if key == "oom" || key == "free" || key == "largest" || key == "rounded" {
		if oom == nil {
			t.Fatalf("%s: no out-of-memory", key)
		}
	}
	switch key {
	case "alloc":
		return sim.Bytes(s.Allocated.Current)
	case "act":
		return sim.Bytes(s.Active.Current)
	case "actUp":
		return sim.Bytes(s.Active.Up())
	case "actDown":
		return sim.Bytes(s.Active.Down)
	case "req":
		return sim.Bytes(s.Requested.Current)
	case "res":
		return sim.Bytes(s.Reserved.Current)
	case "segs":
		return sim.Bytes(s.Segments.Current)
	case "ins":
		return sim.Bytes(s.InactiveSplits.Current)
	case "insB":
		return sim.Bytes(s.InactiveSplit.Current)
	case "retries":
		return sim.Bytes(s.Retries)
	case "syncs":
		return sim.Bytes(s.Syncs)
	case "ooms":
		return sim.Bytes(s.OOMs)
	case "allocs":
		return sim.Bytes(s.DriverAllocs)
	case "frees":
		return sim.Bytes(s.DriverFrees)
	case "polls":
		return sim.Bytes(costs.Polls)
	case "maps":
		return sim.Bytes(costs.Maps)
	case "unmaps":
		return sim.Bytes(costs.Unmaps)
	case "waits":
		return sim.Bytes(costs.Waits)
	case "rejections":
		return sim.Bytes(s.Rejections)
	case "oom":
		return oom.Segment
	case "rounded":
		return oom.Rounded
	case "free":
		return oom.Free()
	case "largest":
		return oom.LargestFree
	}
	t.Fatalf("unknown figure %q", key)
	return 0
}

// size reads 5M, 19M-512, 11M+1, 1048577; empty is 0.
func size(t *testing.T, s string) sim.Bytes {
	if s == "" {
		return 0
	}
	base, rest, minus := s, "", false
	if i := strings.IndexAny(s, "+-"); i >= 0 {
		base, rest, minus = s[:i], s[i+1:], s[i] == '-'
	}
	unit := int64(1)
	if m, ok := strings.CutSuffix(base, "M"); ok {
		base, unit = m, 1<<20
	}
	n, err := strconv.ParseInt(base, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	n *= unit
	if minus {
		return sim.Bytes(n) - size(t, rest)
	}
	return sim.Bytes(n) + size(t, rest)
}

func stream(t *testing.T, s string) Stream { return Stream(size(t, s)) }

func TestGolden(t *testing.T) {
	list := Divisions("64:8,128:2,256:2,512:2,1024:1,>:1")
	for _, c := range []script{
		{"T1 stats of one small block", options(), "", []step{
			{"x=1024", "actUp=1024 actDown=0 act=1024"},
			{"-x empty", "act=0 actDown=1024 res=0"}}},
		{"T2 one byte", options(), "", []step{{"x=1", "alloc=512"}, {"-x", "alloc=0"}}},
		{"T3 small segments hold two", options(), "", []step{
			{"a=1M", "segs=1"}, {"b=1M", "segs=1"}, {"c=1M", "segs=2 res=4M"}}},
		{"T3 small segments of a private pool hold two", options(), "", []step{
			{"a=1M#p", "segs=1"}, {"b=1M#p", "segs=1"}, {"c=1M#p", "segs=2 res=4M"}}},
		{"T4 a private pool keeps its memory", options(), "", []step{
			{"a=1M b=1M x=1M#p -x", "act=2097152 segs=2"},
			{"", "s[A1M A1M] s[.2M]"},
			{"empty", "segs=2"},
			{"y=1M#p", "y=x"},
			{"-y close:p empty", "segs=1"}}},
		{"T18 a pool that does not split", options(), "", []step{
			{"a=4M#whole b=4M#whole", "L[A20M] L[A20M]"}, {"c=4M d=4M", "L[A20M] L[A20M] L[A4M A4M .12M]"}}},
		{"T5 plain rounding", options(), "", []step{{"x=84M", "actUp=88080384"}}},
		{"T6 four divisions", options(divisions("4")), "", []step{{"x=84M", "actUp=100663296 req=88080384"}}},
		{"T7 listed divisions", options(divisions(list)), "", []step{{"x=84M", "actUp=92274688"}}},
		{"T8 listed divisions", options(divisions("[" + list + "]")), "", []step{{"x=400M", "actUp=536870912"}}},
		{"T10 oversize blocks make room, plain segments", options(maxSplit(40), fraction(1)), "120M", []step{
			{"a=40M b=40M c=40M", "res=120M"},
			{"d=40M", "oom=40M"},
			{"-a -b -c e=120M", "res=120M segs=1"}}},
		{"T11 collection makes room, plain segments", options(collectAt(0.5), fraction(1)), "120M", []step{
			{"a=40M b=40M -a -b c=80M", "res=80M retries=0 frees=2"}}},
		{"T12 half of memory twice", options(), "8190M", []step{
			{"a=4096M", ""}, {"b=4096M", "oom=4096M"}, {"-a b=4096M", "res=4096M"}}},
		{"T13 half of memory as limit", options(fraction(0.5)), "8000M", []step{
			{"x=1", ""}, {"a=3992M", ""}, {"-a", ""}, {"b=4000M", "oom=4000M free=7998M"}}},
		{"T14 reuse waits for the recorded stream", options(), "", []step{
			{"tmp=4M@1 tmp!0 -tmp x=4M@1", "x=not:tmp"},
			{"done y=4M@1", "y=tmp"}}},
		{"T15 base and view", options(), "", []step{
			{"base=4M@1 base!2 -base done1 x=4M@1", "x=not:base"}}},

		{"N1 pad", options(npu), "", []step{{"x=160M", "alloc=167772672 res=162M insB=2096640"}}},
		{"N2 pad", options(npu), "", []step{{"x=4096", "alloc=4608"}}},
		{"N3 oversize block not wasted", options(npu, maxSplit(50)), "", []step{
			{"a=100M -a b=75M", "res=178M"}}},
		{"N4 oversize block reused whole", options(npu, maxSplit(50), nonSplit(30)), "", []step{
			{"a=100M -a b=75M", "res=102M alloc=102M"}}},

		{"M G1", options(), "", []step{
			{"a=1", "alloc=512 ins=1 insB=2096640 res=2M"},
			{"b=513", "alloc=1536 ins=1 insB=2095616 res=2M"},
			{"-a", "alloc=1024 ins=2 insB=2096128 res=2M"},
			{"-b", "alloc=0 ins=0 insB=0 res=2M"},
			{"empty", "alloc=0 ins=0 insB=0 res=0"}}},
		{"M G4", options(), "", []step{
			{"a=5M", "L[A5M .15M]"},
			{"-a", "L[.20M]"},
			{"b=19M", "L[A20M]"},
			{"-b c=19M-512", "L[A19922432 .1049088]"}}},
		{"M G5", options(), "", []step{
			{"a=30M b=20M c=24M d=20M -a -b -c -d x=18M", "L[.30M] L[A18M .2M] L[.24M] L[.20M]"},
			{"y=21M", "L[.30M] L[A18M .2M] L[A21M .3M] L[.20M]"},
			{"z=31M", "L[.30M] L[A18M .2M] L[A21M .3M] L[.20M] L[A32M]"},
			{"", "res=126M segs=5 ins=2 insB=5M x=b y=c"}}},
		{"M G6", options(), "", []step{
			{"a=512 b=512 c=512 d=512", "ins=1 insB=2095104"},
			{"-b", "ins=2 insB=2095616"},
			{"-a", "ins=2 insB=2096128"},
			{"-c", "ins=2 insB=2096640"},
			{"-d", "ins=0 insB=0"}}},
		{"M G7 blocks stay with their stream", options(), "", []step{
			{"a=64M -a", "res=64M"}, {"b=64M@1", "res=128M"}, {"c=64M", "res=128M c=a"}}},
		{"M G8 completion alone frees nothing", options(), "", []step{
			{"x=64M x!1 -x", "alloc=0 act=64M"},
			{"", "L[P64M]"},
			{"y=64M", "act=128M segs=2 y=not:x"},
			{"done", "act=128M"},
			{"z=64M", "z=x res=128M polls=2"}}},
		{"M G8b own stream, pytorch", options(), "", []step{{"x=64M x!0 -x", "L[.64M]"}}},
		{"M G8b own stream, torch_npu", options(npu), "", []step{{"x=64M x!0 -x", "L[P67109376 .2096640]"}}},
		{"M G11", options(), "100M", []step{
			{"a=40M b=40M -a c=50M", "res=90M retries=1 syncs=1 allocs=3 frees=1"},
			{"d=20M", "oom=20M free=10485760 retries=2 syncs=2 ooms=1 largest=0"}}},
		{"M G13", options(maxSplit(40)), "", []step{
			{"a=100M -a b=30M", "res=130M"},
			{"c=85M", "res=130M c=a alloc=130M"},
			{"-c d=75M", "res=206M"}}},
		{"M G14", options(maxSplit(40)), "150M", []step{
			{"a=100M -a b=60M", "res=60M retries=0 syncs=0 allocs=2 frees=1"}}},
		{"M G15", options(collectAt(0.5), fraction(1)), "120M", []step{
			{"a=40M b=30M -a -b c=45M", "res=46M alloc=46M frees=2 retries=0"}}},
		{"D G17b", options(), "", []step{
			{"a=32M b=32M c=32M d=32M", "res=128M"},
			{"-a -b -c -d a=16M b=16M c=16M d=16M e=16M f=16M g=16M h=16M", "res=128M segs=4"},
			{"", "L[A16M A16M] L[A16M A16M] L[A16M A16M] L[A16M A16M]"}}},

		{"T10 oversize blocks make room, one of them expandable", options(maxSplit(40), fraction(1)), "120M", []step{
			{"a=40M on b=40M off c=40M", "res=120M segs=2"},
			{"on d=40M", "oom=40M"},
			{"off -a -b -c e=120M", "res=120M segs=1"}}},
		{"T11 collection leaves expandable segments", options(collectAt(0.5), fraction(1)), "120M", []step{
			{"a=40M on b=40M -a -b c=80M", "res=80M frees=1"}}},
		{"D G18", options(expandable), "", []step{
			{"a=16M", "eL[A16M .4M]"},
			{"b=16M", "eL[A16M A16M .8M]"},
			{"c=16M", "eL[A16M A16M A16M .12M]"},
			{"d=16M", "eL[A16M A16M A16M A16M .16M]"},
			{"e=16M", "eL[A16M A16M A16M A16M A16M]"},
			{"f=16M", "eL[A16M A16M A16M A16M A16M A16M .4M]"},
			{"g=16M h=16M", "eL[A16M A16M A16M A16M A16M A16M A16M A16M .12M]"},
			{"", "res=140M segs=0 maps=7"},
			{"-a -b -c -d -e -f -g -h", "eL[.140M]"},
			{"a=32M b=32M c=32M d=32M", "eL[A32M A32M A32M A32M .12M]"},
			{"", "res=140M segs=0 maps=7 ins=0 insB=0"}}},
		{"D G19", options(expandable), "", []step{{"a=2M -a b=524288", "res=22M"}, {"", "eL[.20M] es[A524288 .1572864]"}}},
		{"M G20", options(expandable), "1024M", []step{
			{"a=50M b=50M c=50M", "eL[A50M A50M A50M .10M]"},
			{"-b empty", "eL[A50M .10M] eL[A50M .10M]"},
			{"", "res=120M unmaps=2"},
			{"d=30M", "eL[A50M A30M] eL[A50M .10M]"},
			{"", "res=140M maps=9"}}},
		{"M K2", options(stitched), "", []step{
			{"a=64M b=64M c=64M", "L[A66M] L[A66M] L[A66M]"},
			{"-a -c d=128M", "L[A64M .2M] L[A66M] L[A66M]"},
			{"", "res=198M maps=164 alloc=196M"},
			{"-d", "L[.64M .2M] L[A66M] L[.66M]"},
			{"e=128M", "e=d res=198M maps=164"},
			{"-e f=64M", "L[.64M .2M] L[A66M] L[A66M]"},
			{"g=128M", "L[A64M A2M] L[A66M] L[A66M] L[A64M]"},
			{"-g -f h=128M", "h=d maps=261"}}},
		{"M K3", options(stitched), "", []step{{"a=64M b=64M -a c=128M", "res=196M"}, {"", "L[A66M] L[A66M] L[A64M]"}}},
		{"M K4", options(stitched), "", []step{
			{"a=16M b=16M c=16M d=16M e=16M f=16M g=16M h=16M", "res=144M"},
			{"-a -b -c -d -e -f -g -h a=32M b=32M c=32M d=32M", "res=144M alloc=136M"},
			{"", "L[A16M .2M] L[A16M .2M] L[A16M .2M] L[A16M .2M] L[A18M] L[A18M] L[A18M] L[A18M]"},
			{"-a -b -c -d", "alloc=0 act=0"},
			{"empty", "res=0"}}},
		{"M K5", options(stitched), "", []step{{"a=10M b=10M c=10M", "res=36M"}, {"-a -b -c d=14M-64", "res=50M"}}},

		{"M G21 stitching, as shipped", options(stitched), "", []step{
			{"a=5M b=5M c=5M d=5M", "L[A20M] L[A20M] L[A20M] L[A20M]"},
			{"", "alloc=24M act=80M res=80M"},
			{"-a a=5M e=5M f=5M", "L[A6M A6M A6M .2M] L[A20M] L[A20M] L[A20M]"}}},
		{"M G21 stitching, new segments split", options(stitched, splitFresh), "", []step{
			{"a=5M b=5M c=5M d=5M", "L[A6M A6M A6M .2M] L[A6M .14M]"},
			{"", "alloc=24M act=24M res=40M"}}},
		{"torch_npu may give up at once", options(npu, refuse), "100M", []step{
			{"a=40M-32 b=40M-32 -a c=60M-32", "oom=60M rejections=1 retries=0 syncs=0 frees=0 res=80M"},
			{"c=40M-32", "c=a rejections=1 ooms=1"}}},
		{"pages of 1 GiB", options(npu, page1g), "", []step{{"a=10M-32", "L[A10M .1014M]"}, {"b=9M", "L[A10M A9437696 .1053818368]"}}},
		{"1 GiB for the large pool from 10 MiB on only", options(npu, page1g), "", []step{{"a=9M", "res=20M"}, {"b=1", "res=22M"}}},
		{"expandable pages of 1 GiB", options(npu, expandable, page1g), "", []step{{"a=2M-32 b=1", "res=1026M maps=2"}}},
		{"expandable pages of other sizes", options(npu, expandable, smallPage(4), largeSegment(12)), "", []step{{"a=2M b=1", "res=16M"}}},
		{"PyTorch's page is 20 MiB whatever the segment", options(expandable, largeSegment(12)), "", []step{{"a=2M", "res=20M"}}},
		{"torch_npu aligns in expandable segments", options(npu, expandable), "", []step{
			{"a=1M b=2M", "eL[A1049088 .15872 A2097664 .17808896]"},
			{"c=512 d=3000000", "d=not:a"},
			{"", "eL[A1049088 .15872 A2097664 .15872 A3000320 .14792704] es[A1024 .2096128]"}}},
		{"aligned only where the request fits behind", options(npu, expandable), "", []step{
			{"a=1M b=2M c=16M-32", "eL[A1049088 .15872 A2097664 .15872 A16M .1015808]"},
			{"d=992-32 -c e=16M+1015808-32", "eL[A1049088 .15872 A2097664 .15872 A17793024] es[A1024 .2096128]"}}},
		{"alignment off", options(npu, expandable, align(0)), "", []step{{"a=1M b=2M", "eL[A1049088 A2097664 .17824768]"}}},
		{"the end that can grow is left for large requests", options(expandable), "", []step{
			{"a=5M b=10M -a c=4M", "c=a"},
			{"-c d=5M", "d=a"},
			{"x=17M", "eL[A5M A10M A17M .8M]"}}},
		{"a hole is preferred to the end even where the end fits better", options(expandable), "", []step{
			{"a=8M b=8M -a c=4M", "eL[A4M .4M A8M .4M]"},
			{"-c d=4M", "eL[A4M .4M A8M .4M]"}}},
		{"two streams have two ranges", options(expandable), "", []step{{"a=16M b=16M@1 c=3M", "eL[A16M A3M .1M] s1eL[A16M .4M]"}}},
		{"a range with nothing mapped goes", options(expandable), "1024M", []step{
			{"a=16M -a empty", "res=0 unmaps=1 segs=0"}, {"b=16M", "b=not:a res=20M"}}},
		{"pages end with the capacity", options(expandable), "50M", []step{
			{"a=30M", "res=40M"}, {"b=20M", "oom=20M free=10M retries=1 largest=10M"}, {"c=10M", "res=40M"}}},
		{"pages mapped before memory ran out stay", options(expandable), "110M", []step{
			{"a=20M b=20M c=20M d=20M -a -c empty", "res=40M unmaps=2"},
			{"e=100M@1", "oom=100M res=40M"},
			{"f=60M", "eL[A20M] eL[A20M A60M]"}}},
		{"the limit knows no pages", options(expandable, fraction(0.5)), "100M", []step{
			{"a=30M", "res=40M"}, {"b=10M", "res=40M"}, {"c=11M", "oom=12M"}, {"-a -b empty c=50M", "res=60M"}}},
		{"waiting takes the oldest of the own stream", options(waits), "", []step{
			{"a=64M b=64M c=64M@1 a!2 b!2 c!2 -c -a -b", "polls=0 waits=0"},
			{"x=64M", "x=a waits=1 res=192M"},
			{"y=64M", "y=b waits=2"},
			{"z=64M", "waits=2 res=256M polls=0"},
			{"u=64M@1", "u=c waits=3"}}},
		{"waiting for all that used it", options(waits), "", []step{
			{"a=64M a!1 a!2 -a x=64M", "x=a waits=2"}}},
		{"waiting goes on until the request fits", options(waits), "", []step{
			{"a=5M b=5M c=5M d=5M a!1 b!1 c!1 -a -b -c x=15M", "x=a waits=3 res=20M"}}},
		{"an erased record of a freed block frees it", options(), "", []step{
			{"a=64M a!1 a!2 -a a~1@0", "L[P64M]"}, {"a~2@1", "L[P64M]"}, {"a~2@0", "L[.64M]"}, {"b=64M", "b=a polls=0"}}},
		{"an erased record lets those behind it go", options(), "", []step{
			{"a=64M b=64M a!1 b!1 -a -b a~1@0", "L[.64M] L[P64M]"}, {"done1 x=64M y=64M", "x=a y=b polls=1"}}},
		{"a stitched block waits for other streams", options(stitched), "", []step{
			{"a=64M b=64M -a -b x=128M-4M", "L[A60M .6M] L[A66M]"},
			{"x!1 -x y=64M", "L[P60M A6M] L[P66M] L[A60M]"}}},
		{"15 MiB are not stitched, 16 are", options(stitched), "", []step{
			{"a=10M-32 b=10M-32 -a -b c=14M-32", "L[.10M] L[.10M] L[A14M]"},
			{"d=16M-32", "L[A6M .4M] L[A10M] L[A14M]"}}},
		{"the shortfall counts from above 16 MiB", options(stitched), "", []step{
			{"a=10M-32 -a b=16M-32", "L[.10M] L[A16M]"}, {"c=18M-32", "L[A10M] L[A16M] L[A8M]"}}},
		{"the smallest piece that completes", options(stitched), "", []step{
			{"a=40M-32 b=20M-32 c=12M-32 d=14M-32 -a -b -c -d e=50M-32", "L[A40M] L[.20M] L[A10M .2M] L[.14M]"}}},
		{"a part used alone fragments what lies over it", options(stitched), "", []step{
			{"a=32M-32 b=32M-32 -a -b c=64M-32 -c d=20M-32", "L[A20M .12M] L[.32M]"},
			{"e=64M-32", "L[A20M A12M] L[A32M] L[A20M]"},
			{"-d f=20M-32", "f=a"}}},
		{"emptied cache forgets the mappings", options(stitched), "", []step{
			{"a=32M-32 b=32M-32 c=32M-32 -a -b d=60M-32 -d empty", "L[A32M]"}, {"", "res=32M unmaps=62"}}},
		{"pieces merge when the mapping over them goes", options(stitched), "70M", []step{
			{"a=32M-32 b=32M-32 -a -b c=60M-32 -c d=2M-32@1 e=1", "res=22M frees=2"}}},

		// Edges of our own.
		{"capacity filled to the byte", options(), "40M", []step{
			{"a=20M b=20M", "res=40M retries=0"}, {"c=1", "oom=2M free=0"}}},
		{"capacity one byte short", options(), "40M-1", []step{
			{"a=20M", ""}, {"b=20M", "oom=20M free=20M-1 rounded=20M"}}},
		{"limit filled to the byte", options(fraction(0.5)), "80M", []step{
			{"a=40M", "retries=0"}, {"b=1", "oom=2M free=40M"}}},
		{"the rest of a large segment is kept from 1 MiB and a quantum on", options(), "", []step{
			{"a=31M", "L[A32M]"}, {"b=31M-512", "L[A32M] L[A32505344 .1049088]"}}},
		{"largest free block is of the stream's pool", options(), "41M", []step{
			{"a=5M b=5M@1 -b b=3M@1", "res=40M"}, {"c=16M", "oom=16M largest=15M"}, {"d=18M@1", "oom=18M largest=17M"}}},
		{"erased record frees at once", options(), "", []step{
			{"x=64M x!1 x!2 x~1@0 x~2@1 -x", "L[P64M]"},
			{"done y=64M y!1 y~1@0 -y", "L[.64M]"}}},
		{"head of line", options(), "", []step{
			{"a=2M b=2M a!1 b!2 -a -b", "polls=0"}, {"done1 c=2M", "c=a polls=2"}}},
		{"two streams hold a block", options(), "", []step{
			{"a=64M a!1 a!2 -a done1 b=64M", "b=not:a polls=2"}, {"done c=64M", "c=a polls=3"}}},
		{"lazy asks only on a miss", options(lazy), "", []step{
			{"a=64M b=64M a!1 -a -b done c=64M", "c=b polls=0"}, {"d=64M", "d=a polls=1 res=128M"}}},
		{"small segments are collected by a full release only", options(collectAt(0.5), fraction(1)), "40M", []step{
			{"a=1 -a b=30M", "res=32M frees=0"}, {"-b c=39M", "res=40M frees=2 retries=1"}}},
		{"oversize release takes the largest first and may fail", options(maxSplit(20)), "100M", []step{
			{"a=20M b=22M c=24M d=34M -a -b -c", "res=100M"},
			{"e=40M", "res=94M frees=2 retries=0"}}},
		{"oversize release stops at enough", options(maxSplit(20)), "100M", []step{
			{"a=20M b=20M c=20M d=40M -a -b -c", "res=100M"},
			{"e=40M", "res=100M frees=2 retries=0"}}},
		{"slack of an oversize block is below the limit", options(maxSplit(40)), "", []step{
			{"a=100M -a b=80M", "res=180M"},
			{"c=80M+512", "res=180M c=a"}}},
		{"bytes one byte short", options(backendBytes), "1M-1", []step{
			{"a=1M", "oom=1M free=1M-1 largest=1M-1"}}},
		{"bytes does not wait for what fits", options(backendBytes), "8M", []step{
			{"a=4M a!1 -a b=4M", "res=8M syncs=0 retries=0"}}},
		{"bytes reserves what is active", options(backendBytes), "1M", []step{
			{"a=1", "alloc=512 res=512 allocs=0"},
			{"b=1M-512", "res=1M"},
			{"c=1", "oom=512 free=0 largest=0"},
			{"-a d=500", "d=a res=1M req=1M-12 retries=0"}}},
		{"bytes reuses the last freed range of the size and stream", options(backendBytes), "", []step{
			{"a=4M b=4M c=4M@1 -a -b -c d=4M", "d=b"}, {"e=4M", "e=a"}, {"f=4M", "f=not:c"}, {"g=4M@1", "g=c"}}},
		{"bytes waits for deferred frees when full", options(backendBytes), "8M", []step{
			{"a=8M a!1 -a", "act=8M res=8M alloc=0"}, {"b=4M", "res=4M polls=1 syncs=1 retries=1"}, {"c=8M", "oom=8M largest=4M retries=1"}}},
	} {
		t.Run(c.name, c.run)
	}
}

// One request on a fresh allocator: block size, reservation, layout.
func TestGoldenRounding(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		request string
		block   string
		layout  string
	}{
		{"M 13.3", options(), "1", "512", "s[A512 .2096640]"},
		{"M 13.3", options(), "511", "512", "s[A512 .2096640]"},
		{"M 13.3", options(), "512", "512", "s[A512 .2096640]"},
		{"M 13.3", options(), "513", "1024", "s[A1024 .2096128]"},
		{"M 13.3", options(), "1048575", "1M", "s[A1M .1M]"},
		{"M 13.3", options(), "1048576", "1M", "s[A1M .1M]"},
		{"M 13.3", options(), "1048577", "1049088", "L[A1049088 .19922432]"},
		{"M 13.3", options(), "2M", "2M", "L[A2M .18M]"},
		{"M 13.3", options(), "10485248", "10485248", "L[A10485248 .10486272]"},
		{"M 13.3", options(), "10485249", "10M", "L[A10M]"},
		{"M 13.3", options(), "10485760", "10M", "L[A10M]"},
		{"M 13.3", options(), "10485761", "10486272", "L[A10486272 .2096640]"},
		{"M 13.3", options(), "11M", "12M", "L[A12M]"},
		{"M 13.3", options(), "11M+1", "12M", "L[A12M]"},
		{"M 13.3", options(), "12M-1", "12M", "L[A12M]"},
		{"M 13.3", options(), "19M", "20M", "L[A20M]"},
		{"M 13.3", options(), "104857601", "104858112", "L[A104858112 .2096640]"},

		{"M 13.3 torch_npu", options(npu), "4064", "4096", "s[A4096 .2093056]"},
		{"M 13.3 torch_npu", options(npu), "4065", "4608", "s[A4608 .2092544]"},
		{"M 13.3 torch_npu", options(npu), "1048544", "1M", "s[A1M .1M]"},
		{"M 13.3 torch_npu", options(npu), "1048545", "1049088", "L[A1049088 .19922432]"},
		{"M 13.3 torch_npu", options(npu), "1M", "1049088", "L[A1049088 .19922432]"},
		{"M 13.3 torch_npu", options(npu), "2M", "2097664", "L[A2097664 .18873856]"},
		{"M 13.3 torch_npu", options(npu), "10485728", "10M", "L[A10M]"},
		{"M 13.3 torch_npu", options(npu), "10M", "10486272", "L[A10486272 .2096640]"},
		{"M 13.3 torch_npu", options(npu), "160M", "167772672", "L[A167772672 .2096640]"},

		{"M 13.3 stitching", options(stitched), "1M+1", "20M", "L[A20M]"},
		{"M 13.3 stitching", options(stitched), "2M", "20M", "L[A20M]"},
		{"M 13.3 stitching", options(stitched), "5M", "20M", "L[A20M]"},
		{"M 13.3 stitching", options(stitched), "10M", "12M", "L[A12M]"},
		{"M 13.3 stitching", options(stitched), "16M-32", "16M", "L[A16M]"},
		{"M 13.3 stitching", options(stitched), "64M", "66M", "L[A66M]"},
		{"M 13.3 stitching", options(stitched), "160M", "162M", "L[A162M]"},
		{"M 13.3 stitching, split", options(stitched, splitFresh), "1M+1", "2M", "L[A2M .18M]"},
		{"M 13.3 stitching, split", options(stitched, splitFresh), "2M", "4M", "L[A4M .16M]"},
		{"M 13.3 stitching, split", options(stitched, splitFresh), "5M", "6M", "L[A6M .14M]"},
		{"M 13.3 stitching, small", options(stitched), "1M-32", "1M", "s[A1M .1M]"},

		{"M 13.3 divisions", options(divisions("4")), "1200", "1536", "s[A1536 .2095616]"},
		{"M 13.3 divisions", options(divisions("4")), "2048", "2048", "s[A2048 .2095104]"},
		{"M 13.3 divisions", options(divisions("4")), "2049", "2560", "s[A2560 .2094592]"},
		{"M 13.3 divisions", options(divisions("4")), "3000", "3072", "s[A3072 .2094080]"},
		{"M 13.3 divisions", options(divisions("4")), "1048577", "1310720", "L[A1310720 .19660800]"},
		{"M 13.3 divisions", options(divisions("4")), "84M", "96M", "L[A96M]"},
		{"M 13.3 divisions", options(divisions("4")), "100M+1", "112M", "L[A112M]"},

		{"segment size", options(largeSegment(12)), "2M", "2M", "L[A2M .10M]"},
		{"segment size", options(largeSegment(11)), "10485248", "10485248", "L[A10485248 .1049088]"},
	} {
		t.Run(c.name+" "+c.request, func(t *testing.T) {
			a := mustNew(t, c.options, 0, newFakeEnv(1))
			b := mustMalloc(t, a, size(t, c.request), 0)
			if _, got := a.Range(b); got != size(t, c.block) {
				t.Errorf("block of %d bytes, want %s", got, c.block)
			}
			if got := layout(a); got != c.layout {
				t.Errorf("layout %s, want %s", got, c.layout)
			}
			verify(t, a)
		})
	}
}

// M G8: the history of a deferred free, in PyTorch's words.
func TestGoldenHistory(t *testing.T) {
	env := newFakeEnv(2)
	a := mustNew(t, options(), 0, env)
	h := history(a)
	x := mustMalloc(t, a, 64*sim.MiB, 0)
	a.RecordStream(x, 1)
	a.Free(x)
	mustMalloc(t, a, 64*sim.MiB, 0)
	env.passAll()
	mustMalloc(t, a, 64*sim.MiB, 0)
	want := []string{"segment_alloc 64M", "alloc 64M", "free_requested 64M", "segment_alloc 64M", "alloc 64M", "free_completed 64M", "alloc 64M"}
	if d := cmp.Diff(want, *h); d != "" {
		t.Error(d)
	}

	// T20, T21: the last entry after empty_cache; alloc has the request.
	a = mustNew(t, options(), 64*sim.MiB, env)
	h = history(a)
	x = mustMalloc(t, a, 311*411*4, 0)
	a.Free(x)
	a.EmptyCache()
	if _, err := a.Malloc(80*sim.MiB-1, 0); err == nil {
		t.Error("80 MiB fit into 64")
	}
	want = []string{"segment_alloc 2M", "alloc 511284", "free_requested 511284", "free_completed 511284", "segment_free 2M", "oom 80M"}
	if d := cmp.Diff(want, *h); d != "" {
		t.Error(d)
	}

	// Large segments go before small ones.
	a = mustNew(t, options(), 0, env)
	x, y := mustMalloc(t, a, 1, 0), mustMalloc(t, a, 30*sim.MiB, 0)
	a.Free(x)
	a.Free(y)
	h = history(a)
	a.EmptyCache()
	if d := cmp.Diff([]string{"segment_free 30M", "segment_free 2M"}, *h); d != "" {
		t.Error(d)
	}

	// With pages.
	a = mustNew(t, options(expandable), 64*sim.MiB, env)
	h = history(a)
	x = mustMalloc(t, a, 30*sim.MiB, 0)
	a.Free(x)
	a.EmptyCache()
	want = []string{"segment_map 40M", "alloc 30M", "free_requested 30M", "free_completed 30M", "segment_unmap 40M"}
	if d := cmp.Diff(want, *h); d != "" {
		t.Error(d)
	}

	// G15: collection goes by size.
	a = mustNew(t, options(collectAt(0.5), fraction(1)), 120*sim.MiB, env)
	x, y = mustMalloc(t, a, 40*sim.MiB, 0), mustMalloc(t, a, 30*sim.MiB, 0)
	a.Free(x)
	a.Free(y)
	h = history(a)
	mustMalloc(t, a, 45*sim.MiB, 0)
	want = []string{"segment_free 30M", "segment_free 40M", "segment_alloc 46M", "alloc 45M"}
	if d := cmp.Diff(want, *h); d != "" {
		t.Error(d)
	}
}

// T16: deferred frees past the capacity end in a wait, not in an OOM.
func TestGoldenRecordStreamPastCapacity(t *testing.T) {
	env := newFakeEnv(2)
	a := mustNew(t, options(), 8*sim.GiB, env)
	polls, syncs := 0, 0
	for i := range 100 {
		b := mustMalloc(t, a, 160*sim.MiB, 0)
		k := a.TakeCosts()
		polls += k.Polls
		if k.Sync {
			syncs++
			env.passAll()
			if i != 51 {
				t.Errorf("request %d waited, want the 52nd", i+1)
			}
		}
		a.RecordStream(b, 1)
		a.Free(b)
	}
	s := a.Stats()
	got := []int64{s.Reserved.Current >> 20, s.DriverAllocs, s.DriverFrees, s.Retries, s.OOMs, int64(polls), int64(syncs)}
	if want := []int64{7840, 100, 51, 1, 0, 99, 1}; !slices.Equal(got, want) {
		t.Errorf("reserved MiB, allocs, frees, retries, ooms, polls, syncs = %v, want %v", got, want)
	}
}

// T17: three 20 MiB blocks at a time, ten times, in a pool with a small one.
func TestGoldenSegmentsAreReused(t *testing.T) {
	for _, c := range []struct {
		options  Options
		segments int
	}{{options(), 4}, {options(expandable), 2}} {
		a := mustNew(t, c.options, 0, newFakeEnv(1)).(*caching)
		p := a.NewPool(false)
		get := func(size sim.Bytes) Block {
			b, err := a.MallocIn(p, size, 0)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		get(16)
		for range 10 {
			live := []Block{get(20 * sim.MiB), get(20 * sim.MiB), get(20 * sim.MiB)}
			free(a, live)
		}
		if got := len(a.Segments()); got != c.segments {
			t.Errorf("expandable %v: %d segments, want %d", c.options.ExpandableSegments, got, c.segments)
		}
	}
}

// M G10, G10b: a host d iterations ahead of the device holds d+1 segments.
func TestGoldenRunAhead(t *testing.T) {
	for _, c := range []struct{ n, behind, reserved, polls int }{
		{8, 8, 512, 7}, {8, 0, 64, 7},
		{16, 1, 128, 29}, {16, 2, 192, 28}, {16, 4, 320, 26},
	} {
		t.Run(fmt.Sprintf("%d requests, %d behind", c.n, c.behind), func(t *testing.T) {
			env := newFakeEnv(2)
			a := mustNew(t, options(), 0, env)
			for i := range c.n {
				env.passed[1] = max(0, i-c.behind)
				b := mustMalloc(t, a, 64*sim.MiB, 0)
				a.RecordStream(b, 1)
				a.Free(b)
			}
			if got := a.Stats().Reserved.Current >> 20; got != int64(c.reserved) {
				t.Errorf("reserved %d MiB, want %d", got, c.reserved)
			}
			if got := a.TakeCosts().Polls; got != c.polls {
				t.Errorf("%d polls, want %d", got, c.polls)
			}
		})
	}
}

// D G17, M G21: requests that do not fit what the cache holds.
func TestGoldenFragmentation(t *testing.T) {
	many := func(a Allocator, n int, size sim.Bytes) (list []Block) {
		for range n {
			list = append(list, mustMalloc(t, a, size, 0))
		}
		return list
	}
	a := mustNew(t, options(), 0, newFakeEnv(1))
	live := many(a, 8, 16*sim.MiB)
	if got := a.Stats().Reserved.Current >> 20; got != 128 {
		t.Errorf("G17: reserved %d MiB, want 128", got)
	}
	for _, b := range live {
		a.Free(b)
	}
	many(a, 4, 32*sim.MiB)
	if s := a.Stats(); s.Reserved.Current>>20 != 256 || s.Segments.Current != 12 {
		t.Errorf("G17: reserved %d bytes in %d segments, want 256 MiB in 12", s.Reserved.Current, s.Segments.Current)
	}
	if s := a.Stats(); s.External() != 0.5 || s.Internal() != 0 || s.Waiting() != 0 {
		t.Errorf("G17: external %v, internal %v, waiting %v; want 0.5, 0, 0", s.External(), s.Internal(), s.Waiting())
	}
	if got, want := a.Usable(16*sim.MiB, 0), 128*sim.MiB; got != want {
		t.Errorf("G17: %d bytes usable for 16 MiB, want %d", got, want)
	}
	if got := a.Usable(17*sim.MiB, 0) + a.Usable(16*sim.MiB, 1); got != 0 {
		t.Errorf("G17: %d bytes usable for what does not fit", got)
	}

	for _, c := range []struct {
		options  Options
		segments int64
	}{{options(), 5}, {options(npu), 7}} {
		a := mustNew(t, c.options, 0, newFakeEnv(1))
		many(a, 20, 5*sim.MiB)
		if s := a.Stats(); s.Segments.Current != c.segments || s.Reserved.Current>>20 != 20*c.segments {
			t.Errorf("G21 %s: %d bytes in %d segments, want %d of 20 MiB", c.options.Dialect, s.Reserved.Current, s.Segments.Current, c.segments)
		}
	}
}

// T19, and what a report says.
func TestOOMReport(t *testing.T) {
	a := mustNew(t, options(fraction(0.5)), 100*sim.MiB, newFakeEnv(1))
	mustMalloc(t, a, 1, 0)
	_, err := a.Malloc(800000000*sim.GiB, 0)
	var oom *OOM
	if !errors.As(err, &oom) {
		t.Fatal(err)
	}
	want := OOM{
		Requested: 800000000 * sim.GiB, Rounded: 800000000 * sim.GiB, Segment: 800000000 * sim.GiB,
		Allocated: 512, Active: 512, Reserved: 2 * sim.MiB, Capacity: 100 * sim.MiB, Limit: 50 * sim.MiB,
		Retries: 1,
	}
	if d := cmp.Diff(want, *oom); d != "" {
		t.Error(d)
	}
	if got, want := oom.Torch(), "out of memory: Tried to allocate 800000000.00 GiB. The device has 100.00 MiB, 98.00 MiB of it free. 50.00 MiB may be reserved. Allocated: 512 bytes. Reserved but not allocated: 2.00 MiB."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if strings.Contains(oom.Error(), "\n") || !strings.Contains(oom.Error(), "limit 52428800") {
		t.Error(oom.Error())
	}

	before := a.Stats()
	_, err = a.Malloc(8000000000*sim.GiB, 0)
	if !errors.As(err, &oom) || !strings.Contains(oom.Torch(), "more than 1EB") {
		t.Error(err)
	}
	if d := cmp.Diff(before, a.Stats()); d != "" {
		t.Errorf("a request that no device could serve changed the counters: %s", d)
	}
	for _, size := range []sim.Bytes{0, -1} {
		if _, err := a.Malloc(size, 0); err == nil || errors.As(err, &oom) {
			t.Errorf("request of %d bytes: %v, want a plain error", size, err)
		}
	}
	for n, want := range map[sim.Bytes]string{1024: "1024 bytes", 1025: "1.00 KiB", sim.MiB: "1024.00 KiB", sim.GiB: "1024.00 MiB", sim.GiB + sim.GiB/2: "1.50 GiB"} {
		if got := formatSize(n); got != want {
			t.Errorf("formatSize(%d) = %s, want %s", n, got, want)
		}
	}
}

// query-lazy asks at 513 outstanding events, not at 512.
func TestLazyThreshold(t *testing.T) {
	env := newFakeEnv(2)
	a := mustNew(t, options(lazy), 0, env)
	spare := mustMalloc(t, a, 4096, 0)
	var live []Block
	for range lazyEvents + 1 {
		live = append(live, mustMalloc(t, a, 512, 0))
	}
	for _, b := range live[1:] {
		a.RecordStream(b, 1)
		a.Free(b)
	}
	a.Free(spare)
	env.passAll()
	spare = mustMalloc(t, a, 4096, 0)
	if got := a.TakeCosts().Polls; got != 0 {
		t.Errorf("%d polls with %d outstanding events, want 0", got, lazyEvents)
	}
	a.RecordStream(live[0], 1)
	a.Free(live[0])
	a.Free(spare)
	mustMalloc(t, a, 4096, 0)
	if got := a.TakeCosts().Polls; got != lazyEvents+1 {
		t.Errorf("%d polls with %d outstanding events, want all", got, lazyEvents+1)
	}
}

// torch_npu waits for the device before it gives memory back, PyTorch only for
// its own events in a full release.
func TestRecoveryWaits(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		want    Costs
	}{
		{"collection", options(collectAt(0.5), fraction(1)), Costs{}},
		{"collection", options(npu, collectAt(0.5), fraction(1)), Costs{DeviceSync: true}},
		{"oversize", options(maxSplit(40)), Costs{}},
		{"oversize", options(npu, maxSplit(40)), Costs{DeviceSync: true}},
		{"full", options(), Costs{Sync: true, Polls: 1}},
		{"full", options(npu), Costs{Sync: true, DeviceSync: true, Polls: 1}},
	} {
		t.Run(c.name+" "+c.options.Dialect, func(t *testing.T) {
			a := mustNew(t, c.options, 120*sim.MiB, newFakeEnv(2))
			x := mustMalloc(t, a, 80*sim.MiB-32, 0)
			if c.name == "full" {
				a.RecordStream(x, 1)
			}
			a.Free(x)
			a.TakeCosts()
			mustMalloc(t, a, 100*sim.MiB-32, 0)
			c.want.DriverAllocs, c.want.DriverFrees, c.want.DriverBytes = 1, 1, 100*sim.MiB
			if d := cmp.Diff(c.want, a.TakeCosts()); d != "" {
				t.Error(d)
			}
		})
	}
}

// Collection by age: the mean of the ages decides, a pass runs to its end.
func TestCollectionAges(t *testing.T) {
	a := mustNew(t, options(collectAt(0.35), fraction(1)), 400*sim.MiB, newFakeEnv(1))
	clock := mustMalloc(t, a, 2*sim.MiB, 1)
	a.Free(clock)
	var b [4]Block
	for i := range b {
		b[i] = mustMalloc(t, a, sim.Bytes(20+10*i)*sim.MiB, 0)
	}
	// Stream 1's segment serves searches that let the others age.
	age := func(n int) {
		for range n {
			a.Free(mustMalloc(t, a, 2*sim.MiB, 1))
		}
	}
	a.Free(b[0])
	age(10)
	a.Free(b[3])
	age(30)
	a.Free(b[1])
	a.Free(b[2])
	h := history(a)
	mustMalloc(t, a, 60*sim.MiB, 0)
	// Reserved 160 MiB, threshold 140. Ages 41 (20 MiB), 31 (50 MiB), 1, 1
	// and 1 of stream 1: mean 15. The first would do, the second goes too.
	want := []string{"segment_free 20M", "segment_free 50M", "segment_alloc 60M", "alloc 60M"}
	if d := cmp.Diff(want, *h); d != "" {
		t.Error(d)
	}
}

func TestMisusePanics(t *testing.T) {
	for _, o := range []Options{options(), options(backendBytes)} {
		a := mustNew(t, o, 0, newFakeEnv(2))
		b := mustMalloc(t, a, 1, 0)
		a.Free(b)
		for name, f := range map[string]func(){
			"double free":   func() { a.Free(b) },
			"record":        func() { a.RecordStream(b, 1) },
			"no block":      func() { a.Free(NoBlock) },
			"unknown block": func() { a.Range(99) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s, %s: no panic", o.Backend, name)
					}
				}()
				f()
			}()
		}
	}
}
