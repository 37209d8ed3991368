package alloc_test

import (
	"errors"
	"fmt"

	"smartswap/eager/alloc"
	"smartswap/sim"
)

// device has passed everything that was ever enqueued.
type device struct{}

func (device) Record(alloc.Stream) alloc.Event { return 0 }
func (device) Done(alloc.Event) bool           { return true }

// Two tensors of 40 MiB leave 20 MiB of 100; one is freed, but its segment
// stays cached until a request needs the room.
func Example() {
	a, err := alloc.New(alloc.DefaultOptions(), 100*sim.MiB, device{})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, _ := a.Malloc(40*sim.MiB, 0)
	a.Malloc(40*sim.MiB, 0)
	a.Free(x)
	fmt.Println("reserved after free:", a.Stats().Reserved.Current)

	a.Malloc(50*sim.MiB, 0)
	fmt.Println("reserved after retry:", a.Stats().Reserved.Current, "retries:", a.Stats().Retries)

	_, err = a.Malloc(20*sim.MiB, 0)
	var oom *alloc.OOM
	if errors.As(err, &oom) {
		fmt.Println(oom.Torch())
	}
	// Output:
	// reserved after free: 83886080
	// reserved after retry: 94371840 retries: 1
	// out of memory: Tried to allocate 20.00 MiB. The device has 100.00 MiB, 10.00 MiB of it free. Allocated: 90.00 MiB. Reserved but not allocated: 0 bytes.
}
