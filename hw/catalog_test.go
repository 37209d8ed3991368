package hw

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"smartswap/sim"
)

func TestCatalogueHasWhatIsPromised(t *testing.T) {
	for _, d := range []string{"910b1", "910b2", "910b3", "910b4", "910c", "v100", "a100-40", "a100-80", "h100", "h200", "mi300x", "4090", "titanv", "p100"} {
		if !slices.Contains(Devices(), d) {
			t.Errorf("no device %s", d)
		}
	}
	for _, n := range []string{"910b2-8", "910b2-8-55", "a100-80-8", "h100-8"} {
		if !slices.Contains(Nodes(), n) {
			t.Errorf("no node %s", n)
		}
	}
	used := map[string]bool{}
	for _, name := range Nodes() {
		n, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		used[n.Device.Name] = true
		if n.Name != name {
			t.Errorf("%s is called %s", name, n.Name)
		}
		if !strings.HasPrefix(name, n.Device.Name+"-") {
			t.Errorf("%s holds devices called %s", name, n.Device.Name)
		}
		if n.Devices > 1 && n.Fabric.MaxMembers() > n.Devices {
			t.Errorf("%s: collectives of %d on %d devices", name, n.Fabric.MaxMembers(), n.Devices)
		}
		if n.Device.Capacity() <= 0 {
			t.Errorf("%s: capacity %v", name, n.Device.Capacity())
		}
	}
	for _, d := range Devices() {
		if !used[d] {
			t.Errorf("device %s is in no node", d)
		}
	}
}

// TestEveryNumberHasASource: of every node, every key is set by some file, and
// that file says where the number comes from.
func TestEveryNumberHasASource(t *testing.T) {
	for _, name := range Nodes() {
		n, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range n.Keys() {
			source, ok := n.Source[key]
			if !ok {
				t.Errorf("%s: %s is never set", name, key)
			} else if len(source) < len("assumed: x") {
				t.Errorf("%s: %s: source %q", name, key, source)
			}
			if strings.HasPrefix(source, "assumed") && !strings.HasPrefix(source, "assumed: ") {
				t.Errorf("%s: %s: %q gives no reason", name, key, source)
			}
		}
		for key := range n.Source {
			if !slices.Contains(n.Keys(), key) {
				t.Errorf("%s: source for %s, which is no number", name, key)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	n, err := Load("910b2-8")
	if err != nil {
		t.Fatal(err)
	}
	fast, err := Load("910b2-8-55")
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Link.Rate; got != [NumDirections]sim.Rate{25_600_000_000, 25_600_000_000} {
		t.Errorf("link rate %v", got)
	}
	if got := fast.Link.Rate; got != [NumDirections]sim.Rate{55_000_000_000, 55_000_000_000} {
		t.Errorf("fast link rate %v", got)
	}
	if diff := cmp.Diff(n.Device, fast.Device); diff != "" {
		t.Errorf("the variant has another device:\n%s", diff)
	}
	if n.Device.HBM != 64*sim.GiB || n.Device.Held != 1553*sim.MiB {
		t.Errorf("HBM %v, held %v", n.Device.HBM, n.Device.Held)
	}
	// A device with its own curves keeps none of those of the device that
	// the extended node had.
	v100, err := Load("v100-1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(device(t, "a100-80-8").Flop, v100.Device.Flop); diff != "" {
		t.Errorf("curves of the V100 (-A100 +V100):\n%s", diff)
	}
}

func TestLoadedNodesAreIndependent(t *testing.T) {
	a, err := Load("910b2-8")
	if err != nil {
		t.Fatal(err)
	}
	copied := *a
	for _, kv := range [][2]string{{"device.skinny", "0.5"}, {"fabric.all-gather", "2:1GB/s"}, {"link.rate", "1GB/s"}} {
		if err := copied.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Load("910b2-8")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("setting a copy changed the original:\n%s", diff)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "extends = \"910b2-8\"\n[link]\nrte = \"1GB/s\"", `no number is called "link.rte", the nearest is "link.rate"`},
		{"wrong unit", "extends = \"910b2-8\"\n[link]\nrate = \"1GiB\"", `link.rate.d2h = "1GiB": "1GiB" has no known unit`},
		{"negative", "extends = \"910b2-8\"\n[device]\nhbm = \"-1GiB\"", `device.hbm = "-1GiB": "-1GiB" is not a number >= 0`},
		{"not a number", "extends = \"910b2-8\"\n[device]\nhbm = \"NaN\"", `device.hbm = "NaN"`},
		{"infinite", "extends = \"910b2-8\"\n[device]\nhbm = \"1e999GiB\"", `device.hbm = "1e999GiB"`},
		{"absurd", "extends = \"910b2-8\"\n[device]\nhbm = \"64TiB\"", "must be 64MiB to 16TiB"},
		{"count", "extends = \"910b2-8\"\ndevices = 1.5", `devices = "1.5": want a whole number`},
		{"zero devices", "extends = \"910b2-8\"\ndevices = 0", "devices = 0: must be 1 to 4096"},
		{"type", "extends = \"910b2-8\"\ndevices = true", "devices = true: want a string or a number"},
		{"list", "extends = \"910b2-8\"\ndevices = [8]", "devices = [8]: want a string or a number"},
		{"curve", "extends = \"910b2-8\"\n[device]\nskinny = \"1:2:3\"", `device.skinny = "1:2:3": want a number, or knots`},
		{"curve above 1", "extends = \"910b2-8\"\n[device]\nskinny = \"1:0.5 2:1.5\"", "must be 0.001 to 1"},
		{"curve order", "extends = \"910b2-8\"\n[device]\nskinny = \"2:0.5 2:0.6\"", "sizes must increase"},
		{"thin dimensions", "extends = \"910b2-8\"\n[device]\nskinny = \"4:0.1 5:0.9\"", "rises faster than the dimension at log2 4."},
		{"servers", "extends = \"910b2-8\"\n[fabric]\nserver = 3\nacross = \"1GB/s\"", "fabric.server = 3: must divide devices = 8"},
		{"servers without a network", "extends = \"910b2-8\"\n[fabric]\nserver = 4", "fabric.across = 0"},
		{"no dimension", "extends = \"910b2-8\"\n[device]\nskinny = \"4:0.1 32:0.9\"", "sizes must be 0 to 31"},
		{"table", "extends = \"910b2-8\"\n[fabric]\nall-gather = \"2=1GB/s\"", "want entries such as"},
		{"table order", "extends = \"910b2-8\"\n[fabric]\nall-gather = \"4:1GB/s 2:1GB/s\"", "group sizes must be at least 2 and increase"},
		{"held", "extends = \"910b2-8\"\n[device]\nheld = \"64GiB\"", "must be less than device.hbm"},
		{"pinned", "extends = \"910b2-8\"\n[host]\npinned = \"2TB\"", "must be at most host.memory"},
		{"uplink", "extends = \"910b2-8\"\n[link]\nuplink = \"50GB/s\"", "link.uplink-devices = 0: must be 1 or more"},
		{"rate both", "extends = \"910b2-8\"\n[link]\nrate-both = \"30GB/s\"", "must be at most link.rate.d2h"},
		{"unknown device", "extends = \"910b2-8\"\n[device]\nextends = \"910b9\"", `unknown device "910b9", the nearest is "910b1"; the catalogue has 4090, 910b-20c`},
		{"nothing", "", "devices = 0: must be 1 to 4096"},
		{"fabric", "extends = \"a100-40-1\"\ndevices = 2\n[fabric]\npeer = \"0\"", "fabric.peer"},
		{"syntax", "devices = ", "expected value"},
	} {
		path := filepath.Join(dir, "node.toml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
			continue
		}
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "node") {
			t.Errorf("%s: not one line that names the file: %q", c.name, err)
		}
	}

	self := filepath.Join(dir, "self.toml")
	if err := os.WriteFile(self, []byte("extends = \""+self+"\""), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(self); err == nil || !strings.Contains(err.Error(), "extends itself") {
		t.Errorf("a circle: error %v", err)
	}
	if _, err := Load("910b2"); err == nil || !strings.Contains(err.Error(), `unknown node "910b2", the nearest is "910b2-8"`) {
		t.Errorf("unknown node: error %v", err)
	}
	if _, err := Load(filepath.Join(dir, "absent.toml")); err == nil {
		t.Error("absent file: no error")
	}
}

func TestSet(t *testing.T) {
	n, err := Load("910b2-8")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range [][2]string{
		{"link.rate", "55GB/s"}, {"link.rate.h2d", "50GB/s"}, {"device.hbm", "32GiB"}, {"host.dispatch", "7.5us"},
		{"device.beside", "1.1"}, {"device.beside.matmul", "2.2"}, {"device.peak16", "1PFLOP/s"}, {"device.skinny", "4:0.2 10:1"},
	} {
		if err := n.Set(kv[0], kv[1]); err != nil {
			t.Errorf("%v: %v", kv, err)
		}
	}
	if got := n.Link.Rate; got != [NumDirections]sim.Rate{D2H: 55e9, H2D: 50e9} {
		t.Errorf("link rates %v", got)
	}
	if n.Device.HBM != 32*sim.GiB || n.Host.Dispatch != 7500*sim.Nanosecond || n.Device.Peak16 != 1e15 {
		t.Errorf("HBM %v, dispatch %v, peak %v", n.Device.HBM, n.Host.Dispatch, n.Device.Peak16)
	}
	if n.Device.Beside[MatMul] != 2.2 || n.Device.Beside[Norm] != 1.1 {
		t.Errorf("beside %v", n.Device.Beside)
	}
	if diff := cmp.Diff(Curve{[]Point{{4, 0.2}, {10, 1}}}, n.Device.Skinny); diff != "" {
		t.Errorf("skinny:\n%s", diff)
	}
	if got := n.Source["link.rate.h2d"]; got != "set to 50GB/s" {
		t.Errorf("source %q", got)
	}
	if err := n.Validate(); err != nil {
		t.Error(err)
	}

	before := *n
	for _, c := range []struct{ key, value, want string }{
		{"link.rte", "1GB/s", `no number is called "link.rte", the nearest is "link.rate"`},
		{"", "1", "no number is called"},
		{"link.rate.", "1GB/s", "no number is called"},
		{"device", "1", "device."},
		{"link.rate", "0", "must be 1MB/s to 1000TB/s"},
		{"device.beside", "0.5", "must be 1 to 100"},
		{"device.beside", "+Inf", "want a number"},
		{"host.numa", "0x4", "want a whole number"},
	} {
		if err := n.Set(c.key, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Set(%q, %q): error %v, want %q", c.key, c.value, err, c.want)
		}
	}
	if diff := cmp.Diff(&before, n); diff != "" {
		t.Errorf("a refused value changed the node:\n%s", diff)
	}
}

func TestSettingsReadTheirOwnBounds(t *testing.T) {
	for _, s := range (&Node{}).settings() {
		low, hi := s.bounds()
		if !(low < hi) {
			t.Errorf("%s: bounds %s to %s are read as %v to %v", s.key, s.low, s.hi, low, hi)
		}
		if s.text() == "?" {
			t.Errorf("%s: a %T cannot be shown", s.key, s.to)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]sim.Bytes{"0": 0, "0B": 0, "1B": 1, "1.5kB": 1500, "64GiB": 64 << 30, "1536GB": 1536e9, "2 MiB": 2 << 20, "0.1GB": 1e8} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]sim.Rate{"25.6GB/s": 25_600_000_000, "36GiB/s": 36 << 30, "0": 0, "1B/s": 1} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]sim.Time{"12us": 12 * us, "0.4ns": 400, "1s": sim.Second, "1.5ms": 1500 * us, "3ps": 3, "0": 0} {
		if got, err := ParseTime(text); err != nil || got != want {
			t.Errorf("ParseTime(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "GB", "1", "-1GB", "1gb", "1GB/s", "infGB", "NaNGB", "1e30GB", "0x1GB", "1GB 2GB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", text, got)
		}
	}
	for _, text := range []string{"1GB", "1/s", "1GB/ss"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", text, got)
		}
	}
	for _, text := range []string{"1", "1m", "-1s", "1e9s"} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("ParseTime(%q) = %d, want an error", text, got)
		}
	}
}
