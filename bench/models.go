package bench

// model is a population of actors, each with one event pending. An event that
// fires schedules the actor's next one, after a delay between least and least
// + spread (a power of two less one).
type model struct {
	name          string
	actors        int
	idle          int // timers that wait until everything else is over
	least, spread uint64
}

// models are the ones measured. A run of the simulator has 4 to 64 events
// pending, many at one instant, and often goes on at the same instant.
var models = [...]model{
	// The hold model of the literature on event queues: a steady queue and
	// random delays ("An empirical comparison of priority-queue and
	// event-set implementations", Communications of the ACM, April 1986).
	{name: "hold/16", actors: 16, least: 1, spread: 1<<20 - 1},
	{name: "hold/1024", actors: 1024, least: 1, spread: 1<<20 - 1},
	{name: "hold/65536", actors: 65536, least: 1, spread: 1<<20 - 1},
	// A chain of events at one instant beside pending timers.
	{name: "chain", actors: 1, idle: 64},
	// A thousand processes in step: every event ties with 999 others.
	{name: "ties", actors: 1000, least: 1},
}

// farAway is when idle timers fire, after every other event of a batch.
const farAway = 1 << 50

// load is the state of a batch of a model; it is the same for all engines.
type load struct {
	model
	left  int    // events still to be scheduled
	fired int    // events of actors handled
	rng   uint64 // xorshift64 ("Xorshift RNGs", 2003)
}

// begin prepares a batch of n events.
func (l *load) begin(n int) {
	l.left, l.fired = n-l.actors, 0
	l.rng = 0x9e3779b97f4a7c15
}

// next counts an event that fires and is the delay of that actor's next one;
// more is false when the batch needs no more.
func (l *load) next() (delay uint64, more bool) {
	l.fired++
	if l.left <= 0 {
		return 0, false
	}
	l.left--
	return l.delay(), true
}

func (l *load) delay() uint64 {
	if l.spread == 0 {
		return l.least
	}
	l.rng ^= l.rng << 13
	l.rng ^= l.rng >> 7
	l.rng ^= l.rng << 17
	return l.least + l.rng&l.spread
}
