package main

import (
	"fmt"
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/metrics"
)

// The metrics by torchmetrics' names.
var measures = map[string]any{
	"BinaryAccuracy": metrics.BinaryAccuracy, "MulticlassAccuracy": metrics.MulticlassAccuracy, "MultilabelAccuracy": metrics.MultilabelAccuracy,
	"BinaryPrecision": metrics.BinaryPrecision, "MulticlassPrecision": metrics.MulticlassPrecision, "MultilabelPrecision": metrics.MultilabelPrecision,
	"BinaryRecall": metrics.BinaryRecall, "MulticlassRecall": metrics.MulticlassRecall, "MultilabelRecall": metrics.MultilabelRecall,
	"BinaryF1Score": metrics.BinaryF1Score, "MulticlassF1Score": metrics.MulticlassF1Score, "MultilabelF1Score": metrics.MultilabelF1Score,
	"BinaryFBetaScore": metrics.BinaryFBetaScore, "MulticlassFBetaScore": metrics.MulticlassFBetaScore, "MultilabelFBetaScore": metrics.MultilabelFBetaScore,
	"BinarySpecificity": metrics.BinarySpecificity, "MulticlassSpecificity": metrics.MulticlassSpecificity, "MultilabelSpecificity": metrics.MultilabelSpecificity,
	"BinaryHammingDistance": metrics.BinaryHammingDistance, "MulticlassHammingDistance": metrics.MulticlassHammingDistance,
	"MultilabelHammingDistance": metrics.MultilabelHammingDistance,
	"BinaryStatScores":          metrics.BinaryStatScores, "MulticlassStatScores": metrics.MulticlassStatScores, "MultilabelStatScores": metrics.MultilabelStatScores,
	"MulticlassExactMatch": metrics.MulticlassExactMatch, "MultilabelExactMatch": metrics.MultilabelExactMatch,
	"BinaryConfusionMatrix": metrics.BinaryConfusionMatrix, "MulticlassConfusionMatrix": metrics.MulticlassConfusionMatrix,
	"MultilabelConfusionMatrix": metrics.MultilabelConfusionMatrix,
	"BinaryCohenKappa":          metrics.BinaryCohenKappa, "MulticlassCohenKappa": metrics.MulticlassCohenKappa,
	"BinaryMatthewsCorrCoef": metrics.BinaryMatthewsCorrCoef, "MulticlassMatthewsCorrCoef": metrics.MulticlassMatthewsCorrCoef,
	"MultilabelMatthewsCorrCoef": metrics.MultilabelMatthewsCorrCoef,
	"BinaryJaccardIndex":         metrics.BinaryJaccardIndex, "MulticlassJaccardIndex": metrics.MulticlassJaccardIndex, "MultilabelJaccardIndex": metrics.MultilabelJaccardIndex,
	"BinaryROC": metrics.BinaryROC, "MulticlassROC": metrics.MulticlassROC, "MultilabelROC": metrics.MultilabelROC,
	"BinaryPrecisionRecallCurve": metrics.BinaryPrecisionRecallCurve, "MulticlassPrecisionRecallCurve": metrics.MulticlassPrecisionRecallCurve,
	"MultilabelPrecisionRecallCurve": metrics.MultilabelPrecisionRecallCurve,
	"BinaryAUROC":                    metrics.BinaryAUROC, "MulticlassAUROC": metrics.MulticlassAUROC, "MultilabelAUROC": metrics.MultilabelAUROC,
	"BinaryAveragePrecision": metrics.BinaryAveragePrecision, "MulticlassAveragePrecision": metrics.MulticlassAveragePrecision,
	"MultilabelAveragePrecision": metrics.MultilabelAveragePrecision,
	"BinaryCalibrationError":     metrics.BinaryCalibrationError, "MulticlassCalibrationError": metrics.MulticlassCalibrationError,
	"MeanSquaredError": metrics.MeanSquaredError, "MeanAbsoluteError": metrics.MeanAbsoluteError, "R2Score": metrics.R2Score,
	"ExplainedVariance": metrics.ExplainedVariance, "PearsonCorrCoef": metrics.PearsonCorrCoef, "SpearmanCorrCoef": metrics.SpearmanCorrCoef,
	"CosineSimilarity": metrics.CosineSimilarity, "KLDivergence": metrics.KLDivergence,
	"MeanMetric": metrics.MeanMetric, "SumMetric": metrics.SumMetric, "MaxMetric": metrics.MaxMetric, "MinMetric": metrics.MinMetric,
	"Perplexity": metrics.Perplexity, "WordErrorRate": metrics.WordErrorRate, "CharErrorRate": metrics.CharErrorRate,
	"EditDistance": metrics.EditDistance, "BLEUScore": metrics.BLEUScore,
	"PeakSignalNoiseRatio": metrics.PeakSignalNoiseRatio, "StructuralSimilarityIndexMeasure": metrics.StructuralSimilarityIndexMeasure,
	"MeanIoU": metrics.MeanIoU, "DiceScore": metrics.DiceScore, "MeanAveragePrecision": metrics.MeanAveragePrecision,
}

const (
	specialMeasure = -120 - iota
	specialMeasureMethod
)

func runMetrics(index int64, in *reader) []reflect.Value {
	switch index {
	case specialMeasure:
		name := in.text()
		function, ok := measures[name]
		if !ok {
			panic(broken("there is no metric " + name))
		}
		made := in.invoke(reflect.ValueOf(function))
		numbers++
		kept[numbers] = made[0].Interface()
		return []reflect.Value{reflect.ValueOf(numbers)}
	case specialMeasureMethod:
		object := kept[in.next()]
		switch name := in.text(); name {
		case "Save":
			if err := gotorch.Save(in.text(), object.(metrics.Stateful).StateDict()); err != nil {
				panic(err)
			}
			return nil
		case "Load":
			value, err := gotorch.Load(in.text())
			if err == nil {
				err = object.(metrics.Stateful).LoadStateDict(value.(gotorch.Dict))
			}
			if err != nil {
				panic(&gotorch.Error{Op: name, Kind: gotorch.ValueError, Msg: err.Error()})
			}
			return nil
		case "UpdateImages": // seven tensors for each: boxes, scores and labels; boxes, labels, crowds and areas
			tensors := in.value(reflect.TypeFor[[]gotorch.Tensor]()).Interface().([]gotorch.Tensor)
			var found []metrics.Detections
			var there []metrics.GroundTruth
			for t := range slices.Chunk(tensors, 7) {
				found = append(found, metrics.Detections{Boxes: t[0], Scores: t[1], Labels: t[2]})
				there = append(there, metrics.GroundTruth{Boxes: t[3], Labels: t[4], IsCrowd: t[5], Area: t[6]})
			}
			object.(*metrics.DetectionMetric).Update(found, there)
			return nil
		default:
			method := reflect.ValueOf(object).MethodByName(name)
			if !method.IsValid() {
				panic(broken(fmt.Sprintf("%T has no method %s", object, name)))
			}
			var results []reflect.Value
			for _, r := range in.invoke(method) {
				results = append(results, measured(r))
			}
			return results
		}
	}
	panic(broken(fmt.Sprintf("there is no function %d", index)))
}

// measured makes of a result what the writer can write: the fields of structs one after another.
func measured(v reflect.Value) reflect.Value {
	switch x := v.Interface().(type) {
	case []metrics.Curve:
		var lists [][]float64
		for _, c := range x {
			lists = append(lists, c.X, c.Y, c.Thresholds)
		}
		return reflect.ValueOf(lists)
	case metrics.DetectionResult:
		var classes []float64
		for _, c := range x.Classes {
			classes = append(classes, float64(c))
		}
		return reflect.ValueOf([][]float64{{x.MAP, x.MAP50, x.MAP75, x.MAPSmall, x.MAPMedium, x.MAPLarge}, x.MAR,
			{x.MARSmall, x.MARMedium, x.MARLarge}, classes, x.MAPPerClass, x.MARPerClass})
	case int:
		return reflect.ValueOf(int64(x))
	}
	return v
}
