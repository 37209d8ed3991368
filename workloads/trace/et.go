package trace

import (
	"fmt"
	"io"
	"math"
	"math/big"
	"path/filepath"
	"strings"

	"smartswap/formats/chrome"
	"smartswap/formats/et"
	"smartswap/formats/native"
	"smartswap/hw"
	"smartswap/sim"
	"smartswap/workloads"
)

// openET reads an ExecutionTrace, alone or with Options.Kineto, a Kineto trace of
// the same run.
//
// The workload is that of the device that most tensors are on. A node is an
// operator if it touches that device and nothing inside it does more than
// allocate or make views: the innermost that works. Operators stand in the order
// in which they ended on the host.
//
// A storage is born where a node makes it or an allocation inside that node
// does, and ends with its last use; if its label comes up again, that is another
// storage. What is read before anything made it was there before and is a
// resident. Sizes are lower bounds: the furthest byte that any tensor reaches.
//
// Without a Kineto trace nothing tells times, and the device's model prices each
// operator by the bytes of its tensors, and a matrix product by its numbers of
// elements. With one, an operator takes the sum of its kernels.
func openET(rep *Report, path string, opt Options) (*native.Trace, error) {
	c := etConverter{}
	err := readFile(rep, path, opt, func(r io.Reader, name string) (err error) {
		c.file = name
		c.g, err = et.Read(r, name, &rep.list)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.window(rep, opt.Step); err != nil {
		return nil, err
	}
	c.chooseDevice(rep)
	if c.device == "" {
		return nil, fmt.Errorf("%s: no tensor on a device in the graph; it cannot become a workload", c.file)
	}
	if opt.Kineto != "" {
		var k *kineto
		var partner map[int64]int
		if k, partner, err = pair(rep, c.g, c.file, opt); err != nil {
			return nil, err
		}
		c.times, rep.Streams = k.nodeTimes(partner, c.from, c.to)
	}
	c.convert()
	p, names, err := c.write(kindOf(rep, c.sign()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	if p.Ops == 0 {
		return nil, fmt.Errorf("%s: no operator on %s in the graph", c.file, c.device)
	}
	c.report(rep)
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".json")
	rank := workloads.Rank{Devices: []int{0}, Residents: p.Storages[:p.Residents:p.Residents]}
	return native.NewTrace(name, 0, names, []workloads.Rank{rank}, [][]*workloads.Program{{p}}), nil
}

// sign is what shows that the chosen step is one of training; "" = nothing.
func (c *etConverter) sign() string {
	for i := range c.g.Nodes {
		if n := &c.g.Nodes[i]; n.ID >= c.from && n.ID < c.to && trainsAt(n.Name) >= 0 {
			return n.Name
		}
	}
	return ""
}

// nodeTime is what a paired trace tells of a node: the time of its kernels on
// each lane.
type nodeTime [workloads.NumLanes]sim.Time

type etConverter struct {
	script
	file   string
	g      *et.Graph
	device string
	times  map[int64]nodeTime // by node; nil = no paired trace

	from, to int64           // ids of the chosen step
	works    []bool          // by node: the node is an operator
	lives    []*life         // in order of creation
	current  map[int64]*life // by label
	ends     map[int][]*cell // by step: storages whose last use it is
	backward bool
}

// life is the present storage of a label.
type life struct {
	cell     *cell
	born     int64 // the node that made it
	lastStep int
}

// window finds the nodes of a step: those from its annotation to the next one's.
func (c *etConverter) window(rep *Report, step string) error {
	c.from, c.to = 0, math.MaxInt64
	var steps []string
	found := false
	for i := range c.g.Nodes {
		n := &c.g.Nodes[i]
		name, ok := strings.CutPrefix(n.Name, "ProfilerStep#")
		switch {
		case !ok:
		case found:
			c.to = n.ID
			return nil
		case name == step && step != "":
			c.from, found = n.ID, true
		case len(steps) < 20:
			steps = append(steps, name)
		}
	}
	if step == "" && len(steps) > 1 {
		rep.note(Inferred, c.file, "the graph has several profiled steps, which are one iteration; choose one as the step: %s", strings.Join(steps, " "))
	}
	if step != "" && !found {
		return fmt.Errorf("%s: step %q; allowed: %s", c.file, step, strings.Join(steps, " "))
	}
	return nil
}

// chooseDevice picks the accelerator that most tensors are on.
func (c *etConverter) chooseDevice(rep *Report) {
	counts := map[string]int{}
	var order []string
	for i := range c.g.Nodes {
		n := &c.g.Nodes[i]
		for _, list := range [][]et.Tensor{n.Inputs, n.Outputs} {
			for k := range list {
				if d := list[k].Device; d != "" && d != "cpu" && d != "meta" {
					if counts[d]++; counts[d] == 1 {
						order = append(order, d)
					}
				}
			}
		}
	}
	others := 0
	for _, d := range order {
		if counts[d] > counts[c.device] {
			c.device = d
		}
	}
	for _, d := range order {
		if d != c.device {
			others += counts[d]
		}
	}
	if others > 0 {
		rep.note(Skipped, c.file, "%d uses of tensors on other devices than %s", others, c.device)
	}
}

// passive are operators without device work: they allocate or make views.
var passive = map[string]bool{
	"aten::empty": true, "aten::empty_strided": true, "aten::empty_like": true, "aten::new_empty": true, "aten::new_empty_strided": true, "aten::resize_": true,
	"aten::resize_as_": true, "aten::set_": true, "aten::view": true, "aten::_unsafe_view": true, "aten::_reshape_alias": true, "aten::as_strided": true,
	"aten::expand": true, "aten::expand_as": true, "aten::t": true, "aten::transpose": true, "aten::permute": true, "aten::select": true, "aten::slice": true, "aten::narrow": true,
	"aten::squeeze": true, "aten::unsqueeze": true, "aten::unbind": true, "aten::split": true, "aten::split_with_sizes": true, "aten::chunk": true, "aten::diagonal": true,
	"aten::alias": true, "aten::detach": true, "aten::detach_": true, "detach": true, "detach_": true, "aten::unfold": true, "aten::flatten": true, "aten::view_as": true,
	"aten::result_type": true, "aten::is_nonzero": true, "aten::lift_fresh": true,
}

// isOperator says whether a name is that of an operator rather than of an
// annotation, a backward node around operators, or the record of a collective's
// parameters.
func isOperator(name string) bool {
	return strings.Contains(name, "::") && !strings.HasPrefix(name, "autograd::engine") && !strings.HasPrefix(name, "[pytorch")
}

// onDevice says whether a node touches the device.
func (c *etConverter) onDevice(n *et.Node) bool {
	for _, list := range [][]et.Tensor{n.Inputs, n.Outputs} {
		for k := range list {
			if list[k].Device == c.device && list[k].Elements > 0 {
				return true
			}
		}
	}
	return false
}

// convert writes the script.
func (c *etConverter) convert() {
	nodes := c.g.Nodes
	up := func(i int) int {
		if p, ok := c.g.Find(nodes[i].Parent); ok && p != i {
			return p
		}
		return -1
	}
	inside := func(i int) bool { return nodes[i].ID >= c.from && nodes[i].ID < c.to }
	c.works = make([]bool, len(nodes))
	inner := make([]bool, len(nodes)) // something inside the node works
	// Children begin after their parents, so have larger ids.
	for i := len(nodes) - 1; i >= 0; i-- {
		n := &nodes[i]
		_, timed := c.times[n.ID]
		c.works[i] = inside(i) && (timed || !inner[i] && isOperator(n.Name) && !passive[n.Name] && c.onDevice(n))
		if p := up(i); p >= 0 && (c.works[i] || inner[i]) {
			inner[p] = true
		}
	}
	c.current, c.ends = make(map[int64]*life), make(map[int][]*cell)
	backward := make([]bool, len(nodes))
	last := -1 // the last operator of a backward pass
	for i := range nodes {
		if p := up(i); p >= 0 {
			backward[i] = backward[p]
		}
		backward[i] = backward[i] || strings.HasPrefix(nodes[i].Name, "autograd::engine") || isBackward(nodes[i].Name)
		if backward[i] && c.works[i] {
			last = i
		}
	}
	for _, i := range postorder(nodes, up) {
		switch {
		case c.works[i] && backward[i] && !c.backward:
			c.backward = true
			c.steps = append(c.steps, scriptStep{kind: workloads.Mark, phase: workloads.MarkBackwardBegin})
		case c.works[i] && c.backward && i > last && !backward[i] && last >= 0:
			c.steps = append(c.steps, scriptStep{kind: workloads.Mark, phase: workloads.MarkOptimizerBegin})
			last = -1
		}
		if inside(i) {
			c.node(&nodes[i], c.works[i])
		}
	}
	for _, l := range c.lives {
		c.end(l)
	}
	c.release()
}

// postorder lists nodes so that what is inside a node comes before it. Parents
// have smaller ids than what is inside them; a node whose parent does not is
// taken as a root.
func postorder(nodes []et.Node, up func(int) int) []int {
	order := make([]int, 0, len(nodes))
	var open []int
	for i := range nodes {
		p := up(i)
		for len(open) > 0 && open[len(open)-1] != p {
			order = append(order, open[len(open)-1])
			open = open[:len(open)-1]
		}
		open = append(open, i)
	}
	for len(open) > 0 {
		order = append(order, open[len(open)-1])
		open = open[:len(open)-1]
	}
	return order
}

// node writes a node that works, or lets a passive one allocate.
func (c *etConverter) node(n *et.Node, works bool) {
	if !c.onDevice(n) || !works && !passive[n.Name] {
		if works { // its kernels run, whatever it uses
			c.operator(n, nil)
		}
		return
	}
	var args []scriptArg
	read := map[int64]bool{}
	for k := range n.Inputs {
		v := &n.Inputs[k]
		if v.Device != c.device || v.Elements <= 0 {
			continue
		}
		read[v.Storage] = true
		if works {
			l := c.use(n, v, false)
			args = append(args, scriptArg{cellView{l.cell, 0}, workloads.Read})
		}
	}
	for k := range n.Outputs {
		v := &n.Outputs[k]
		if v.Device != c.device || v.Elements <= 0 {
			continue
		}
		if !works && read[v.Storage] {
			continue // a view
		}
		if !works {
			l := c.use(n, v, true)
			c.steps = append(c.steps, scriptStep{kind: workloads.Op, name: n.Name, hostOnly: true, args: []scriptArg{{cellView{l.cell, 0}, workloads.Write}}})
			continue
		}
		mode := workloads.Update
		l := c.current[v.Storage]
		if !read[v.Storage] && (l == nil || l.born < n.ID) {
			l = c.use(n, v, true)
			mode = workloads.Write
		} else {
			l = c.use(n, v, false)
			if !read[v.Storage] {
				mode = workloads.Write // allocated inside this node
			}
		}
		args = append(args, scriptArg{cellView{l.cell, 0}, mode})
	}
	if works {
		c.operator(n, args)
	}
}

// use finds the present storage of a tensor's label, or makes one.
func (c *etConverter) use(n *et.Node, v *et.Tensor, fresh bool) *life {
	l := c.current[v.Storage]
	if fresh {
		l = nil // the label is given out again
	}
	if l == nil {
		l = &life{cell: &cell{refs: 1, constant: !fresh, label: "output of " + n.Name, forward: !c.backward}, born: n.ID}
		if !fresh {
			l.cell.label = "made before the recording"
		}
		c.cells = append(c.cells, l.cell)
		c.lives = append(c.lives, l)
		c.current[v.Storage] = l
	}
	l.cell.bytes = max(l.cell.bytes, 1, sim.Bytes(v.Reach()))
	l.lastStep = len(c.steps)
	if c.backward && l.cell.forward && !l.cell.constant {
		l.cell.saved = true
	}
	return l
}

// end remembers that a storage is not used after its last step.
func (c *etConverter) end(l *life) {
	if !l.cell.constant {
		c.ends[l.lastStep] = append(c.ends[l.lastStep], l.cell)
	}
}

// operator writes the operator of a node, one for each lane that it uses.
func (c *etConverter) operator(n *et.Node, args []scriptArg) {
	step := scriptStep{kind: workloads.Op, name: n.Name, args: args}
	family := familyByName(n.Name)
	if c.times == nil {
		step.work = modelled(n, args, family)
		c.steps = append(c.steps, step)
		return
	}
	t, ok := c.times[n.ID]
	step.hostOnly = !ok
	step.work = hw.Work{Kind: hw.Measured, Family: family, Time: t[workloads.Compute]}
	c.steps = append(c.steps, step)
	for _, lane := range []workloads.Lane{workloads.Comm, workloads.CommPeer} {
		if t[lane] > 0 {
			c.steps = append(c.steps, scriptStep{kind: workloads.Op, name: n.Name, lane: lane, work: hw.Work{Kind: hw.Measured, Family: family, Time: t[lane]}})
		}
	}
}

// release puts the drops behind the last uses.
func (c *etConverter) release() {
	steps := make([]scriptStep, 0, len(c.steps)+len(c.cells))
	for i := range c.steps {
		steps = append(steps, c.steps[i])
		for _, s := range c.ends[i] {
			steps = append(steps, scriptStep{kind: workloads.Drop, at: s, last: true})
		}
	}
	c.steps = steps
}

// modelled prices an operator by what it touches. A matrix product of m x k and
// k x n has the square root of (mk * kn * mn) = mnk multiplications; the last
// two inputs and the first output are the matrices.
func modelled(n *et.Node, args []scriptArg, family hw.Family) hw.Work {
	w := hw.Work{Kind: hw.Modelled, Family: family}
	for _, list := range [][]et.Tensor{n.Inputs, n.Outputs} {
		for k := range list {
			w.Traffic = min(w.Traffic+sim.Bytes(list[k].Elements*list[k].ElementBytes), 1<<50)
		}
	}
	switch n.Name {
	case "aten::mm", "aten::addmm", "aten::linear":
		if k := len(n.Inputs); k >= 2 && len(n.Outputs) > 0 {
			product := big.NewInt(n.Inputs[k-1].Elements)
			product.Mul(product, big.NewInt(n.Inputs[k-2].Elements)).Mul(product, big.NewInt(n.Outputs[0].Elements))
			if root := product.Sqrt(product); root.IsInt64() && root.Int64() < 1<<60 {
				w.Flops = 2 * root.Int64()
			}
		}
	}
	return w
}

// report notes what was inferred.
func (c *etConverter) report(rep *Report) {
	rep.note(Inferred, c.file, "the life of a storage: from the node that makes it to its last use; sizes are lower bounds")
	if c.times == nil {
		rep.note(Inferred, c.file, "times: the graph has none; the device's model prices operators by the bytes they touch")
	} else {
		rep.note(Inferred, c.file, "the order of operators and their times, from the paired trace; the host's own times are those of the simulated host")
	}
	if c.saved > 0 {
		rep.note(Inferred, c.file, "%d tensors that are made before the backward pass and used in it count as saved by autograd", c.saved)
	}
	rep.note(Inferred, c.file, "which nodes work: the innermost that touch the device and are no allocations or views; families and phases, from names")
}

// pair finds a graph's nodes among the operators of a Kineto trace of the same run.
// Where record-function ids and names of the trace agree with the graph's, they
// are the link. Older traces number otherwise; then each thread of the graph is
// found again as a run of operators of the same names in the trace. If more than
// one node in ten has no partner, the files are not of one run.
func pair(rep *Report, g *et.Graph, file string, opt Options) (*kineto, map[int64]int, error) {
	k := &kineto{rep: rep, opt: Options{Member: opt.KinetoMember}, annotations: true}
	if err := k.read(opt.Kineto); err != nil {
		return nil, nil, err
	}
	partner := k.byID(g)
	how := "record-function ids"
	if len(partner)*2 < len(g.Nodes) {
		partner, how = k.byOrder(g), "the order of names"
	}
	nodes, missing := 0, []int64{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.RF == 0 {
			continue
		}
		nodes++
		if _, ok := partner[n.ID]; !ok {
			missing = append(missing, n.ID)
		}
	}
	if len(missing)*10 > nodes {
		return nil, nil, fmt.Errorf("%s: %d of %d nodes have no partner in %s, such as %s; the two are not of one run", file, len(missing), nodes, opt.Kineto, strings.Trim(fmt.Sprint(missing[:min(3, len(missing))]), "[]"))
	}
	if len(missing) > 0 {
		rep.note(Skipped, file, "%d nodes have no partner in the paired trace; they take no time", len(missing))
	}
	rep.note(Inferred, file, "nodes are paired with %d host operators by %s", len(partner), how)
	return k, partner, nil
}

// byID pairs nodes and operators of k whose ids and names agree.
func (k *kineto) byID(g *et.Graph) map[int64]int {
	ops := make(map[int64]int, len(k.ops))
	for i := range k.ops {
		if id := k.ops[i].function; id != chrome.None {
			ops[id] = i
		} else if id := k.ops[i].external; id != chrome.None {
			ops[id] = i
		}
	}
	partner := make(map[int64]int)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if op, ok := ops[n.RF]; ok && n.RF != 0 && k.ops[op].name == n.Name {
			partner[n.ID] = op
		}
	}
	return partner
}

// Bounds of the search for a run of names.
const (
	lookAhead   = 50      // operators of the trace that the graph may lack in a row
	searchSteps = 1 << 26 // of all comparisons
)

// byOrder pairs each thread of the graph with the best run of operators of the
// same names on one thread of the trace.
func (k *kineto) byOrder(g *et.Graph) map[int64]int {
	threads := map[int64][]*et.Node{}
	var ids []int64
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.RF == 0 {
			continue
		}
		if threads[n.Thread] == nil {
			ids = append(ids, n.Thread)
		}
		threads[n.Thread] = append(threads[n.Thread], n)
	}
	order := k.inOrder()
	partner := make(map[int64]int)
	budget := searchSteps
	for _, id := range ids {
		nodes := threads[id]
		best, bestStart := 0, -1
		for start := range order {
			if k.ops[order[start]].name != nodes[0].Name {
				continue
			}
			if n := k.align(nodes, order, start, &budget, nil); n > best {
				best, bestStart = n, start
			}
			if best == len(nodes) || budget <= 0 {
				break
			}
		}
		if bestStart >= 0 {
			all := searchSteps
			k.align(nodes, order, bestStart, &all, partner)
		}
	}
	return partner
}

// align walks along nodes and operators from start on and counts the nodes that
// find one of their name; partner, if not nil, gets them.
func (k *kineto) align(nodes []*et.Node, order []int, start int, budget *int, partner map[int64]int) (found int) {
	thread, at, missed := k.ops[order[start]].thread, start, 0
	for _, n := range nodes {
		hit := false
		for j := at; j < min(at+lookAhead, len(order)) && k.ops[order[j]].thread == thread; j++ {
			if *budget--; *budget <= 0 {
				return found
			}
			if k.ops[order[j]].name == n.Name {
				if partner != nil {
					partner[n.ID] = order[j]
				}
				at, hit = j+1, true
				found++
				break
			}
		}
		if !hit {
			if missed++; missed*10 > len(nodes) {
				return found
			}
		}
	}
	return found
}

// nodeTimes sums the kernels of each paired operator of the busiest device. A
// kernel belongs to the innermost operator around the call that launched it. The
// streams are of all work from the first to the last kernel of the nodes from id
// from to below to.
func (k *kineto) nodeTimes(partner map[int64]int, from, to int64) (map[int64]nodeTime, []Stream) {
	node := make(map[int]int64, len(partner)) // by operator
	for id, op := range partner {
		node[op] = id
	}
	device, pid := k.device()
	var work []*deviceWork
	var points []hostPoint
	for i := range k.work {
		w := &k.work[i]
		if p, ok := k.launch[w.correlation]; ok && w.device == device && w.pid == pid && w.duration <= int64(maxKernelTime/sim.Nanosecond) {
			work = append(work, w)
			points = append(points, p)
		}
	}
	times := make(map[int64]nodeTime)
	begin, end := int64(math.MaxInt64), int64(math.MinInt64)
	for i, op := range k.innermost(points) {
		if id, ok := node[op]; ok {
			if id >= from && id < to {
				begin, end = min(begin, work[i].start), max(end, work[i].start)
			}
			t := times[id]
			t[laneByName(work[i].name)] += sim.Time(work[i].duration) * sim.Nanosecond
			times[id] = t
		}
	}
	var list []tlStream
	for i := range k.work {
		w := &k.work[i]
		if w.device == device && w.pid == pid && w.start >= begin && w.start <= end && w.duration <= int64(maxKernelTime/sim.Nanosecond) && laneByName(w.name) == workloads.Compute {
			list = append(list, tlStream{streamName(w.stream), w.name, w.start, sim.Time(w.duration) * sim.Nanosecond})
		}
	}
	return times, streams(list)
}
