package ops_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/vision/ops"
)

func ExampleNMS() {
	boxes := gotorch.NewTensor([][]float32{{0, 0, 10, 10}, {1, 1, 10, 10}, {20, 20, 30, 30}})
	scores := gotorch.FromSlice([]float32{0.8, 0.9, 0.3})
	fmt.Println(gotorch.ToSlice[int](ops.NMS(boxes, scores, 0.5)))
	// Output: [1 2]
}

func ExampleBoxIoU() {
	boxes := gotorch.NewTensor([][]float32{{0, 0, 2, 2}, {0, 0, 1, 1}})
	fmt.Println(ops.BoxIoU(boxes, boxes))
	// Output:
	// tensor([[1.0000, 0.2500],
	//         [0.2500, 1.0000]])
}

func ExampleRoIAlign() {
	maps := gotorch.Arange(16).To(gotorch.Float32).View([]int64{1, 1, 4, 4})
	rois := ops.RoIs([]gotorch.Tensor{gotorch.NewTensor([][]float32{{0, 0, 2, 2}})})
	fmt.Println(ops.RoIAlign(maps, rois, []int64{2}))
	// Output:
	// tensor([[[[2.5000, 3.5000],
	//           [6.5000, 7.5000]]]])
}

func ExampleBoxConvert() {
	box := gotorch.FromSlice([]float32{1, 2, 5, 10})
	fmt.Println(ops.BoxConvert(box, ops.XYXY, ops.CXCYWH))
	// Output: tensor([3., 6., 4., 8.])
}

func ExampleFeaturePyramidNetwork() {
	pyramid := ops.NewFeaturePyramidNetwork([]int64{8, 16}, 4, ops.FeaturePyramidNetworkOptions{ExtraBlocks: ops.NewLastLevelMaxPool()})
	maps := pyramid.Forward(ops.FeatureMaps{
		{Name: "0", Tensor: gotorch.Zeros([]int64{1, 8, 16, 16})},
		{Name: "1", Tensor: gotorch.Zeros([]int64{1, 16, 8, 8})},
	})
	for _, m := range maps {
		fmt.Println(m.Name, m.Shape())
	}
	// Output:
	// 0 [1 4 16 16]
	// 1 [1 4 8 8]
	// pool [1 4 4 4]
}
