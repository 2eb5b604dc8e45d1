package distributed_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
)

// A job of one process, which torchrun would start with these variables, and with others for more.
func Example() {
	for name, value := range map[string]string{"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"} {
		os.Setenv(name, value)
		defer os.Unsetenv(name)
	}
	world, err := distributed.Init(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close()
	t := gotorch.FromSlice([]float32{1, 2})
	world.AllReduce(t, distributed.Sum) // of one
	fmt.Println(world, gotorch.ToSlice[float32](t))
	// Output: rank 0 of 1 [1 2]
}
