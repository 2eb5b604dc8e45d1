// A stand-in for a header of gloo, see context.h. Nothing of it is used.
#pragma once
