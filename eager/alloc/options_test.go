package alloc

import (
	"math"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

func TestOptionsRefused(t *testing.T) {
	set := func(f func(*Options)) Options { return options(f) }
	for _, c := range []struct {
		options Options
		want    []string // each must be in the message
	}{
		{Options{}, []string{`backend = ""`, `"caching", "stitching" or "bytes"`}},
		{set(func(o *Options) { o.Backend = "buddy" }), []string{`backend = "buddy"`}},
		{set(func(o *Options) { o.Dialect = "cuda" }), []string{`dialect = "cuda"`, `"pytorch" or "torch_npu"`}},
		{set(func(o *Options) { o.EventPolicy = "never" }), []string{`event_policy = "never"`, `"query", "query-lazy" or "wait-at-reuse"`}},
		{options(maxSplit(2)), []string{"max_split_size_mb = 2", "0 (unlimited) or 20 to"}}, // T9
		{options(maxSplit(-1)), []string{"max_split_size_mb = -1"}},
		{options(maxSplit(1 << 50)), []string{"max_split_size_mb"}},
		{options(maxSplit(40), nonSplit(19)), []string{"max_non_split_rounding_mb = 19", "20 to"}},
		{options(largeSegment(10)), []string{"large_segment_size_mb = 10", "11 to"}},
		{options(fraction(1), collectAt(1.2)), []string{"garbage_collection_threshold = 1.2", "between 0 and 1"}}, // T9
		{options(fraction(1), collectAt(1)), []string{"garbage_collection_threshold = 1"}},
		{options(fraction(1), collectAt(math.NaN())), []string{"garbage_collection_threshold = NaN"}},
		{options(fraction(1.5)), []string{"per_process_memory_fraction = 1.5", "to 1"}},
		{options(fraction(math.NaN())), []string{"per_process_memory_fraction = NaN"}},
		{options(fraction(-0.1)), []string{"per_process_memory_fraction = -0.1"}},
		{options(divisions("3")), []string{`roundup_power2_divisions = "3"`, "power of two"}},
		{options(divisions("-4")), []string{"power of two"}},
		{options(divisions("four")), []string{`"four"`, "power of two"}},
		{options(divisions("64:8,")), []string{`entry ""`, "size_mb:divisions"}},
		{options(divisions("64:8,100:2")), []string{`entry "100:2"`, "power of two"}},
		{options(divisions("0:8")), []string{`entry "0:8"`}},
		{options(divisions("64:6")), []string{`entry "64:6"`}},
		{options(divisions("[64:8")), []string{"']' is missing"}},

		{options(nonSplit(30)), []string{"max_non_split_rounding_mb = 30", "max_split_size_mb = 0", "contradict"}},
		{options(maxSplit(20), largeSegment(21)), []string{"large_segment_size_mb = 21", "max_split_size_mb = 20", "contradict"}},
		{options(collectAt(0.5)), []string{"garbage_collection_threshold = 0.5", "per_process_memory_fraction = 0", "contradict"}},
		{options(backendBytes, maxSplit(40)), []string{`backend = "bytes"`, "max_split_size_mb", "contradict"}},
		{options(backendBytes, divisions("4")), []string{`backend = "bytes"`, "roundup_power2_divisions", "contradict"}},
		{options(backendBytes, lazy), []string{`backend = "bytes"`, "event_policy", "contradict"}},
		{options(backendBytes, largeSegment(12)), []string{`backend = "bytes"`, "large_segment_size_mb"}},
		{options(backendBytes, early), []string{`backend = "bytes"`, "drain", `"caching" or "stitching"`}},

		{set(func(o *Options) { o.Drain = "never" }), []string{`drain = "never"`, `"late" or "early"`}},
		{set(func(o *Options) { o.PageSize = "2m" }), []string{`page_size = "2m"`, `"" or "1g"`}},
		{options(npu, expandable, smallPage(3)), []string{"segment_size_mb = 3", "even number from 2"}},
		{options(npu, expandable, smallPage(0)), []string{"segment_size_mb = 0"}},
		{options(npu, expandable, align(48)), []string{"base_addr_aligned_kb = 48", "power of two"}},
		{options(npu, expandable, align(-1)), []string{"base_addr_aligned_kb = -1"}},
		{options(npu, expandable, maxSplit(40)), []string{"expandable_segments = true", "max_split_size_mb = 40", "contradict"}},
		{options(npu, expandable, collectAt(0.5), fraction(1)), []string{"expandable_segments = true", "garbage_collection_threshold = 0.5", "contradict"}},
		{options(npu, expandable, largeSegment(13)), []string{"expandable_segments = true", "large_segment_size_mb = 13", "contradict"}},
		{options(npu, expandable, page1g, largeSegment(12)), []string{`page_size = "1g"`, "large_segment_size_mb = 12", "contradict"}},
		{options(npu, smallPage(4)), []string{"segment_size_mb = 4", "expandable_segments = false", "contradict"}},
		{options(npu, align(4)), []string{"base_addr_aligned_kb = 4", "expandable_segments = false", "contradict"}},
		{options(expandable, smallPage(4)), []string{`dialect = "pytorch"`, "segment_size_mb", "contradict"}},
		{options(expandable, align(4)), []string{`dialect = "pytorch"`, "base_addr_aligned_kb", "contradict"}},
		{options(page1g), []string{`dialect = "pytorch"`, "page_size", "contradict"}},
		{options(refuse), []string{`dialect = "pytorch"`, "throw_on_npumalloc_oom", "contradict"}},
		{options(splitFresh), []string{`backend = "caching"`, "fresh_segment_split", `only "stitching"`}},
		{options(stitched, expandable), []string{`backend = "stitching"`, "expandable_segments", "contradict"}},
		{options(stitched, divisions("4")), []string{`backend = "stitching"`, "roundup_power2_divisions", "contradict"}},
		{options(stitched, refuse), []string{`backend = "stitching"`, "throw_on_npumalloc_oom", "contradict"}},
		{options(stitched, page1g), []string{`backend = "stitching"`, "page_size", "contradict"}},
		{options(stitched, largeSegment(13)), []string{`backend = "stitching"`, "large_segment_size_mb = 13", "contradict"}},
	} {
		err := c.options.Validate()
		if err == nil {
			t.Errorf("accepted %+v", c.options)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: want one line with %q", err, w)
			}
		}
		if _, err := New(c.options, 0, newFakeEnv(1)); err == nil || !strings.HasPrefix(err.Error(), "allocator: ") {
			t.Errorf("New: %v", err)
		}
	}
}

func TestOptionsAccepted(t *testing.T) {
	for _, o := range []Options{
		options(), options(npu), options(lazy), options(backendBytes, npu, fraction(0.5)),
		options(maxSplit(20)), options(maxSplit(40), nonSplit(30)), options(fraction(1), collectAt(0.8)),
		SmartSwapOptions(), options(stitched, splitFresh, early, waits, maxSplit(40), collectAt(0.5), fraction(1), largeSegment(12)),
		options(expandable, maxSplit(40), collectAt(0.5), fraction(1), largeSegment(13)), options(npu, refuse, page1g),
		options(npu, expandable, smallPage(4), align(0), largeSegment(12)), options(npu, expandable, page1g),
		options(divisions("1")), options(divisions("0")), options(divisions("[ 64:8, 128 : 2,>:1 ]")), options(divisions(">:4")),
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestDivisions(t *testing.T) {
	for _, c := range []struct {
		text Divisions
		want [numDivisions]int
	}{
		{"", [numDivisions]int{}},
		{"8", [numDivisions]int{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}},
		{"64:8,256:2", [numDivisions]int{8, 8, 8, 8, 8, 8, 8, 0, 2}},
		{"2:4,>:1", [numDivisions]int{4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{"32768:2", [numDivisions]int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
		{"1048576:2", [numDivisions]int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
		{"4:2,1:8", [numDivisions]int{8, 2, 2}},
	} {
		d, err := parseDivisions(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var got [numDivisions]int
		for i, v := range d {
			got[i] = int(v)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}

// The names are PyTorch's, and a file may set a few over the defaults.
func TestOptionsFromTOML(t *testing.T) {
	o := DefaultOptions()
	meta, err := toml.Decode(`
		dialect = "torch_npu"
		max_split_size_mb = 64
		roundup_power2_divisions = "64:8,>:1"
		per_process_memory_fraction = 0.9
		garbage_collection_threshold = 0.8
	`, &o)
	if err != nil || len(meta.Undecoded()) > 0 {
		t.Fatal(err, meta.Undecoded())
	}
	want := options(npu, maxSplit(64), divisions("64:8,>:1"), fraction(0.9), collectAt(0.8))
	if d := cmp.Diff(want, o); d != "" {
		t.Error(d)
	}
}

// Only a device that orders streams can make one wait at reuse.
func TestWaitAtReuseNeedsAWaiter(t *testing.T) {
	if _, err := New(options(waits), 0, noEvents{}); err == nil || !strings.Contains(err.Error(), `event_policy = "wait-at-reuse"`) {
		t.Error(err)
	}
	if _, err := New(options(waits), 0, newFakeEnv(1)); err != nil {
		t.Error(err)
	}
}

// Divisions come as PyTorch takes them: a number for all sizes, which a TOML
// file writes with or without quotes, or a list.
func TestDivisionsFromTOML(t *testing.T) {
	for text, want := range map[string]Divisions{
		`4`: "4", `0`: "0", `"4"`: "4", `""`: "", `"[256:1,512:2,>:4]"`: "[256:1,512:2,>:4]",
	} {
		o := options(divisions("8"))
		if _, err := toml.Decode("roundup_power2_divisions = "+text, &o); err != nil || o.RoundupPower2Divisions != want {
			t.Errorf("%s: %q, %v", text, o.RoundupPower2Divisions, err)
		}
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`4.0`, `true`, `[4]`, `{}`} {
		o := options(divisions("8"))
		_, err := toml.Decode("roundup_power2_divisions = "+text, &o)
		if err == nil || !strings.Contains(err.Error(), `want an integer, or a string such as "4" or "[256:1,512:2,>:4]"`) || o.RoundupPower2Divisions != "8" {
			t.Errorf("%s: %q, %v", text, o.RoundupPower2Divisions, err)
		}
	}
	o := options()
	if _, err := toml.Decode("roundup_power2_divisions = 3", &o); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), `roundup_power2_divisions = "3"`) {
		t.Error(err)
	}
}
