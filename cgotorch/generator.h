/* generator.h: random number generators. Included by cgotorch.h, inside its extern "C". All of
 * these are safe to call from several threads at once. */
#ifndef CGOTORCH_GENERATOR_H
#define CGOTORCH_GENERATOR_H

/* Seeds the default generators of all devices, also of those first used later. */
CGOTORCH_API const char *ManualSeed(uint64_t seed) CGOTORCH_SYMBOL(ManualSeed);

/* A new generator for the device, with the seed that PyTorch gives new generators. */
CGOTORCH_API const char *NewGenerator(Device device, Generator *result)
    CGOTORCH_SYMBOL(NewGenerator);
/* The device's own generator, which ops use when they are given none: not a copy. */
CGOTORCH_API const char *DefaultGenerator(Device device, Generator *result)
    CGOTORCH_SYMBOL(DefaultGenerator);
/* A new generator in the state of g. */
CGOTORCH_API const char *GeneratorClone(Generator g, Generator *result)
    CGOTORCH_SYMBOL(GeneratorClone);
/* A second handle to the same generator. */
CGOTORCH_API Generator RetainGenerator(Generator g) CGOTORCH_SYMBOL(RetainGenerator);

CGOTORCH_API const char *GeneratorDevice(Generator g, Device *result)
    CGOTORCH_SYMBOL(GeneratorDevice);
CGOTORCH_API const char *GeneratorManualSeed(Generator g, uint64_t seed)
    CGOTORCH_SYMBOL(GeneratorManualSeed);
/* Seeds from the system's source of randomness; *seed is what it took. */
CGOTORCH_API const char *GeneratorSeed(Generator g, uint64_t *seed) CGOTORCH_SYMBOL(GeneratorSeed);
/* The seed that was set last. */
CGOTORCH_API const char *GeneratorInitialSeed(Generator g, uint64_t *seed)
    CGOTORCH_SYMBOL(GeneratorInitialSeed);
/* The whole state as a CPU tensor of bytes, the same as torch.Generator.get_state's. */
CGOTORCH_API const char *GeneratorState(Generator g, Tensor *result)
    CGOTORCH_SYMBOL(GeneratorState);
CGOTORCH_API const char *GeneratorSetState(Generator g, Tensor state)
    CGOTORCH_SYMBOL(GeneratorSetState);
/* The position in the stream of numbers; RuntimeError for generators without one (CPU). */
CGOTORCH_API const char *GeneratorOffset(Generator g, uint64_t *offset)
    CGOTORCH_SYMBOL(GeneratorOffset);
CGOTORCH_API const char *GeneratorSetOffset(Generator g, uint64_t offset)
    CGOTORCH_SYMBOL(GeneratorSetOffset);

#endif
